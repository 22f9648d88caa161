/** The most attacked hosts. */
import { useApp, useProject } from '../app.ts';
import { csv, curlCommand, download, fileName } from '../export.ts';
import { formatCount, share } from '../format.ts';
import type { HostTotals } from '../host-totals.ts';
import { PageLink } from '../parts/frame.tsx';
import { Panel } from '../parts/panel.tsx';
import type { TimeRange } from '../time-range.ts';
import { TOP_ROWS } from './top-lists.tsx';

export function HostsPanel({ hosts, range }: { hosts: readonly HostTotals[]; range: TimeRange }) {
  const { view, zone } = useApp();
  const project = useProject();
  const ordered = hosts.toSorted((a, b) => b.attacks - a.attacks || b.requests - a.requests);
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const save = () => download(fileName(project.name, 'hosts', range, zone, 'csv'), hostsCsv(ordered));
  const path = 'overviews/attack/top-domains';
  return (
    <Panel
      title="Most attacked hosts"
      class="top-hosts"
      extras={
        <PageLink class="all" to={{ page: 'hosts', order: 'attacks' }}>
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
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Host</th>
            {['Requests', 'Attacks', 'Rate'].map((title) => (
              <th key={title} scope="col" class="number">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {ordered.slice(0, TOP_ROWS).map((host) => (
            <HostRow key={host.id} host={host} />
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function HostRow({ host: { id, hostname, requests, attacks } }: { host: HostTotals }) {
  const { view, go } = useApp();
  const isChosen = view.hosts.includes(id);
  const others = view.hosts.filter((other) => other !== id);
  return (
    <tr class={isChosen ? 'chosen' : undefined}>
      <th scope="row">
        <button
          class="link cut"
          type="button"
          title={isChosen ? `Remove the filter ${hostname}` : `Filter by ${hostname}`}
          aria-pressed={isChosen}
          onClick={() => go({ hosts: isChosen ? others : [...others, id] })}
        >
          {hostname}
        </button>
      </th>
      <td class="number">{formatCount(requests)}</td>
      <td class={`number ${attacks > 0 ? 'attack' : 'faint'}`}>{formatCount(attacks)}</td>
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
