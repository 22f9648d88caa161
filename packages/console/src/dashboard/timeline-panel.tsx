/** The timeline: requests above, attacks below, by category or by host. */
import type { AttackType, Client, StatisticsQuery } from '@wafstat/client';
import { useMemo, useRef, useState } from 'preact/hooks';
import type { HostFigures } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { byAttacks, CATEGORY_NAMES } from '../categories.ts';
import { sumOf, total, totalsOf } from '../counts.ts';
import { chartPng, csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { ALL_CATEGORIES, copyItems, type MenuItem } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Problem } from '../parts/states.tsx';
import { numberColumn, Table } from '../parts/table.tsx';
import { pointLength } from '../points.ts';
import type { TimeRange } from '../time-range.ts';
import { type Action, useAction } from '../use-query.ts';
import { countedCategories, filtersCategories, type View } from '../view.ts';
import { offsetName, type Zone } from '../zone.ts';
import { Chart } from './chart.tsx';
import { type Dashboard, HOST_LINES_MAX, type HostLines, type Period } from './data.ts';
import { type Layer, type Pane, stackHeights } from './pane.ts';

/** Colours of the lines of hosts, in their order. */
const LINE_COLOURS = [
  'accent',
  'attack',
  ...['xss', 'sqli', 'robot', 'cmdi', 'whiteblackip', 'webshell', 'rfi', 'illegal'].map(
    (name) => `category-${name}`,
  ),
];

interface TimelinePanelProps {
  now: Dashboard;
  /** Null: there is no earlier data. */
  before: Period | null;
  /** Null: the view has no lines per host, or they are still loading. */
  lines: HostLines | null;
  /** Why the latest load failed. */
  failure: unknown;
}

export function TimelinePanel({ now, before, lines, failure }: TimelinePanelProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const box = useRef<HTMLDivElement>(null);
  const [isTable, setTable] = useState(false);
  const saving = useAction();
  const { edges } = lines ?? now;
  const panes = useMemo(
    () => (lines === null ? categoryPanes(now, before, view) : hostPanes(lines, countedCategories(view))),
    [now, before, lines, view.categories, view.excluded],
  );
  const label = `Timeline: ${panes.map(summary).join(', ')}. Use the arrow keys to read the points, with Shift to select, Enter to zoom in, or open the table.`;
  return (
    <Panel
      title="Timeline"
      class="timeline"
      failure={failure}
      extras={
        <>
          <ModeSwitch />
          <span class="hint step">{`per ${duration(pointLength(edges))}`}</span>
          {before !== null && !view.byHost && <span class="hint ghost-key">previous period</span>}
          <Button kind="quiet small" aria-expanded={isTable} onClick={() => setTable(!isTable)} icon="table">
            Table
          </Button>
        </>
      }
      exports={useExports(now.range, panes, box, saving)}
    >
      <Problem text={saving.problem} />
      <div class="chart-box" ref={box}>
        {isTable ? (
          <TimelineTable edges={edges} panes={panes} zone={zone} />
        ) : (
          <Chart
            panes={panes}
            edges={edges}
            zone={zone}
            firstSeen={now.firstSeen}
            unfinished={(edges.at(-1) ?? 0) > app.now()}
            label={label}
            zoom={(from, to) => go({ selectedRange: { from, to } })}
          />
        )}
      </div>
      {view.byHost && <HostLegend panes={panes} />}
    </Panel>
  );
}

function ModeSwitch() {
  const { view, go } = useApp();
  const modes = [
    { byHost: false, title: 'By category' },
    { byHost: true, title: 'By host' },
  ];
  return (
    <div class="segments compact" role="group" aria-label="Show">
      {modes.map(({ byHost, title }) => (
        <button
          key={title}
          type="button"
          title={byHost ? `A line for each of up to ${HOST_LINES_MAX} hosts` : 'Attacks of each category'}
          aria-pressed={view.byHost === byHost}
          onClick={() => go({ byHost }, 'replace')}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

function HostLegend({ panes }: { panes: readonly Pane[] }) {
  const { go } = useApp();
  const layers = panes.find(({ name }) => name === 'requests')?.layers ?? [];
  return (
    <div class="legend" role="group" aria-label="Hosts">
      {layers.map(({ key, title, counts, colour }) => (
        <button
          key={key}
          class="key"
          type="button"
          title={`Show only ${title}`}
          style={{ '--key': `var(--${colour})` }}
          onClick={() => go({ hosts: [key] })}
        >
          {title}
          <b>{formatCount(total(counts))}</b>
        </button>
      ))}
    </div>
  );
}

function categoryPanes({ counts }: Dashboard, before: Period | null, view: View): Pane[] {
  const counted = countedCategories(view);
  const totals = totalsOf(counts.attacks);
  // The largest category is at the bottom.
  const names = byAttacks(totals).filter((name) => counted.includes(name) && totals[name] > 0);
  const layerOf = (name: AttackType): Layer => ({
    key: name,
    title: CATEGORY_NAMES[name],
    counts: counts.attacks[name],
    colour: `category-${name}`,
  });
  return [
    {
      name: 'requests',
      title: 'Requests',
      kind: 'area',
      layers: [{ key: 'requests', title: 'Requests', counts: counts.requests, colour: 'accent' }],
      ghost: before?.counts.requests ?? null,
    },
    {
      name: 'attacks',
      title: 'Attacks',
      kind: 'stack',
      layers: names.map(layerOf),
      ghost: before && sumOf(before.counts.attacks, counted),
    },
  ];
}

function hostPanes({ hosts }: HostLines, counted: readonly AttackType[]): Pane[] {
  const lines = (countsOf: (host: HostFigures) => readonly number[]) =>
    hosts.map((host, i): Layer => {
      const colour = LINE_COLOURS[i] ?? 'edge';
      return { key: host.id, title: host.hostname, counts: countsOf(host), colour };
    });
  const common = { kind: 'lines', ghost: null } as const;
  return [
    { ...common, name: 'requests', title: 'Requests', layers: lines(({ requests }) => requests) },
    { ...common, name: 'attacks', title: 'Attacks', layers: lines(({ attacks }) => sumOf(attacks, counted)) },
  ];
}

function summary({ title, layers }: Pane): string {
  return `${title} ${formatCount(total(layers.map(({ counts }) => total(counts))))}`;
}

function TimelineTable({
  edges,
  panes,
  zone,
}: {
  edges: readonly number[];
  panes: readonly Pane[];
  zone: Zone;
}) {
  const columns = panes.flatMap(({ title, kind, layers }): readonly Pick<Layer, 'title' | 'counts'>[] => {
    if (kind === 'lines')
      return layers.map((layer) => ({ ...layer, title: `${layer.title}, ${title.toLowerCase()}` }));
    return kind === 'stack' ? [{ title, counts: stackHeights(layers).at(-1) ?? [] }, ...layers] : layers;
  });
  return (
    <Table
      name="Timeline as a table"
      rows={edges.slice(1).map((_, i) => i)}
      keyOf={(i) => String(edges[i])}
      initialSort={{ by: 'Time', descending: false }}
      columns={[
        {
          title: 'Time',
          cell: (i) => formatRange(edges[i] ?? 0, edges[i + 1] ?? 0, zone),
          compare: (a, b) => a - b,
        },
        ...columns.map(({ title, counts }) => numberColumn(title, (i: number) => counts[i] ?? 0)),
      ]}
    />
  );
}

function useExports(
  range: TimeRange,
  panes: readonly Pane[],
  box: { current: HTMLElement | null },
  { run }: Action,
): MenuItem[] {
  const { api, view, zone } = useApp();
  const project = useProject();
  const name = (ending: string) => fileName(project.name, 'timeline', range, zone, ending);
  const savePng = () => {
    const [from, to] = [range.from, range.to].map((time) => formatTime(time, zone));
    const caption = `${from} – ${to}, ${zone.id} (${offsetName(range.from, zone)})`;
    const legend = panes
      .flatMap(({ layers }) => layers)
      .map((layer) => ({ ...layer, count: total(layer.counts) }));
    const canvases = [...(box.current?.querySelectorAll('canvas') ?? [])];
    download(name('png'), chartPng(canvases, project.name, caption, legend));
  };
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const parameters = { timezone: zone.id };
  const saveCsv = () =>
    run(async () => {
      const hosts = view.hosts.length === 0 ? undefined : view.hosts;
      const content = await timelineCsv(api.client(project.id), { ...range, ...parameters, hosts }, view);
      download(name('csv'), content);
    });
  const curl = ['event/timeline', 'overviews/attack/timeline'].map((path) =>
    curlCommand({ ...query, path, parameters }),
  );
  const commands = ['timeline', 'timeline --by category'].map((command) =>
    wafstatCommand(`${command} --timezone ${zone.id}`, query),
  );
  return [
    { label: 'Download PNG', run: savePng },
    { label: 'Download CSV', run: saveCsv },
    ...copyItems(curl.join('\n'), commands.join('\n'), filtersCategories(view) ? ALL_CATEGORIES : undefined),
  ];
}

/** Every point of the API, which are more than those that are drawn. The attacks are those of the selected categories. */
async function timelineCsv(client: Client, query: StatisticsQuery & TimeRange, view: View): Promise<string> {
  const [{ requests }, categories] = await Promise.all([
    client.timeline(query),
    client.attackTimeline(query),
  ]);
  const counted = countedCategories(view);
  const columns = categories.filter(({ key }) => counted.includes(key));
  const rows = requests.map(({ time, num }, i) => {
    const attacks = columns.map(({ timeline }) => timeline[i]?.num ?? 0);
    const start = requests[i - 1]?.time ?? query.from;
    return [new Date(start).toISOString(), new Date(time).toISOString(), num, total(attacks), ...attacks];
  });
  return csv([['from', 'to', 'requests', 'attacks', ...columns.map(({ key }) => key)], ...rows]);
}
