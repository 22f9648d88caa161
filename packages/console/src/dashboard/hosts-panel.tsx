/** The most attacked hosts. */
import { useApp, useProject } from '../app.ts';
import { csv, curlCommand, download, fileName } from '../export.ts';
import { formatCount, share } from '../format.ts';
import type { HostTotals } from '../host-totals.ts';
import { PageLink } from '../parts/frame.tsx';
import { Panel } from '../parts/panel.tsx';
import type { TimeRange } from '../time-range.ts';
import { SkeletonRow, TOP_ROWS } from './top-lists.tsx';

/** `hosts` is null while they are loading. */
export function HostsPanel({ hosts, range }: { hosts: readonly HostTotals[] | null; range: TimeRange }) {
  const { view, zone } = useApp();
  const project = useProject();
  const ordered = (hosts ?? []).toSorted((a, b) => b.attacks - a.attacks || b.requests - a.requests);
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const save = () => download(fileName(project.name, 'hosts', range, zone, 'csv'), hostsCsv(ordered));
  const path = 'overviews/attack/top-domains';
  return (
    <Panel
      title="Most attacked hosts"
      class="top-hosts"
      extras={
        <PageLink class="all" to={{ page: 'hosts', sort: 'attacks' }}>
          All
        </PageLink>
      }
      exports={[
        { label: 'Download CSV', run: save },
        {
          label: 'Copy as curl',
          copy: curlCommand({ ...query, path, parameters: { top: String(TOP_ROWS) } }),
        },
      ]}
    >
      <table class="ranking">
        <thead class="offscreen">
          <tr>
            {['Host', 'Attacks', 'Attack rate'].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {hosts === null && Array.from({ length: TOP_ROWS }, (_, i) => <SkeletonRow key={String(i)} />)}
          {ordered.slice(0, TOP_ROWS).map((host) => (
            <HostRow key={host.id} host={host} most={Math.max(1, ordered[0]?.attacks ?? 1)} />
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function HostRow({ host, most }: { host: HostTotals; most: number }) {
  const { view, go } = useApp();
  const { id, hostname, requests, attacks } = host;
  const isChosen = view.hosts.includes(id);
  const others = view.hosts.filter((other) => other !== id);
  return (
    <tr class={isChosen ? 'chosen' : undefined}>
      <th scope="row">
        <span class="bar" style={{ width: `${(attacks / most) * 100}%` }} />
        <button
          class="filter cut"
          type="button"
          title={`${isChosen ? 'Remove the filter' : 'Filter by'} ${hostname}: ${formatCount(attacks)} attacks, ${formatCount(requests)} requests`}
          aria-pressed={isChosen}
          onClick={() => go({ hosts: isChosen ? others : [...others, id] })}
        >
          {hostname}
        </button>
      </th>
      <td class="number">{formatCount(attacks)}</td>
      <td class="number faint">{share(attacks, requests)}</td>
    </tr>
  );
}

function hostsCsv(hosts: readonly HostTotals[]): string {
  return csv([
    ['host', 'id', 'requests', 'attacks'],
    ...hosts.map(({ hostname, id, requests, attacks }) => [hostname, id, requests, attacks]),
  ]);
}
