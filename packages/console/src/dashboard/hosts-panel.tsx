/** The most attacked hosts. */
import { useApp, useProject } from '../app.ts';
import { total } from '../counts.ts';
import { csv, curlCommand, download, fileName } from '../export.ts';
import { formatCount, plural, share } from '../format.ts';
import { type HostTotals, NO_HOST, NO_HOST_TITLE } from '../host-totals.ts';
import { RowAction, RowActions } from '../parts/filter-value.tsx';
import { PageLink } from '../parts/frame.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking, TOP_ROWS } from '../parts/ranking.tsx';
import type { TimeRange } from '../time-range.ts';

interface HostsPanelProps {
  /** Null: still loading, or it failed. */
  hosts: readonly HostTotals[] | null;
  /** Why they could not be loaded. */
  failure: unknown;
  range: TimeRange;
}

export function HostsPanel({ hosts, failure, range }: HostsPanelProps) {
  const { view, zone } = useApp();
  const project = useProject();
  const ordered = (hosts ?? []).toSorted((a, b) => b.attacks - a.attacks || b.requests - a.requests);
  const most = Math.max(1, ordered[0]?.attacks ?? 1);
  const all = total(ordered.map(({ attacks }) => attacks));
  const { hosts: selected, filters } = view;
  const query = { ...range, origin: location.origin, project: project.id, hosts: selected, filters };
  const save = () => {
    const rows = ordered.map(({ hostname, id, requests, attacks }) => [hostname, id, requests, attacks]);
    const content = csv([['host', 'id', 'requests', 'attacks'], ...rows]);
    download(fileName(project.name, 'hosts', range, zone, 'csv'), content);
  };
  const copy = curlCommand({
    ...query,
    path: 'overviews/attack/top-domains',
    parameters: { top: String(TOP_ROWS) },
  });
  return (
    <Panel
      title="Most attacked hosts"
      class="top-hosts"
      failure={failure}
      extras={
        <PageLink class="all" to={{ page: 'hosts', sort: 'attacks' }}>
          All
        </PageLink>
      }
      exports={[
        { label: 'Download CSV', run: save },
        { label: 'Copy as curl', copy },
      ]}
    >
      <Ranking columns={['Host', 'Attacks', 'Share']} isLoading={hosts === null && failure === null}>
        {ordered.slice(0, TOP_ROWS).map((host) => (
          <HostRow key={host.id} host={host} most={most} all={all} />
        ))}
      </Ranking>
    </Panel>
  );
}

/** `most`: attacks of the first host. `all`: those of all. */
function HostRow({ host, most, all }: { host: HostTotals; most: number; all: number }) {
  const { view, go } = useApp();
  const { id, hostname, attacks } = host;
  const isChosen = view.hosts.includes(id);
  const others = view.hosts.filter((other) => other !== id);
  return (
    <tr class={isChosen ? 'chosen' : undefined}>
      <th scope="row">
        <span class="bar" style={{ width: `${(attacks / most) * 100}%` }} />
        {id === NO_HOST ? (
          <span class="label faint" title={NO_HOST_TITLE}>
            {hostname}
          </span>
        ) : (
          <span class="label">
            <button
              class="filter cut"
              type="button"
              title={`${isChosen ? 'Remove the filter' : 'Only'} ${hostname}: ${plural(attacks, 'attack')}`}
              aria-pressed={isChosen}
              onClick={() => go({ hosts: isChosen ? others : [...others, id] })}
            >
              {hostname}
            </button>
            <RowActions>
              <RowAction
                icon="right"
                label={`Details of ${hostname}`}
                act={() => go({ open: { kind: 'host', value: id } })}
              />
            </RowActions>
          </span>
        )}
      </th>
      <td class="number">{formatCount(attacks)}</td>
      <td class="number faint" title="Share of all attacks">
        {attacks === 0 ? '–' : share(attacks, all)}
      </td>
    </tr>
  );
}
