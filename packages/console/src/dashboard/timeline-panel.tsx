/** The timeline: requests above, attacks below, by category or by host. */
import type { Annotation, AttackType, Burst, Client, StatisticsQuery } from '@wafstat/client';
import { CATEGORY_NAMES } from '@wafstat/client';
import { useMemo, useRef, useState } from 'preact/hooks';
import type { HostFigures } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { byAttacks } from '../categories.ts';
import { sumOf, total, totalsOf } from '../counts.ts';
import { chartPng, csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { apiFilter, countedCategories, type Filter, keptFilters, only } from '../filters.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { ComparePicker } from '../parts/controls.tsx';
import { copyItems, type MenuItem } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Problem } from '../parts/states.tsx';
import { numberColumn, Table } from '../parts/table.tsx';
import { pointLength } from '../points.ts';
import type { TimeRange } from '../time-range.ts';
import { type Action, useAction } from '../use-query.ts';
import type { Split } from '../view.ts';
import { offsetName, type Zone } from '../zone.ts';
import { Annotations } from './annotations.tsx';
import { Chart } from './chart.tsx';
import { type Dashboard, HOST_LINES_MAX, type HostLines, type Period } from './data.ts';
import { type Layer, type Pane, stackHeights } from './pane.ts';
import { burstView } from './situation.tsx';

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
  bursts: readonly Burst[];
  annotations: readonly Annotation[];
  /** Why the latest load failed. */
  failure: unknown;
}

export function TimelinePanel({ now, before, lines, bursts, annotations, failure }: TimelinePanelProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const box = useRef<HTMLDivElement>(null);
  const [isTable, setTable] = useState(false);
  const saving = useAction();
  const { edges } = lines ?? now;
  const { filters, by } = view;
  const isFiltered = keptFilters(filters).length > 0;
  const panes = useMemo(() => {
    const all = lines === null ? periodPanes(now, before, filters, by) : hostPanes(lines);
    // Requests are not filtered: their number would be another one.
    return all.filter(({ name }) => name !== 'requests' || !isFiltered);
  }, [now, before, lines, filters, by]);
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
          {lines === null && (
            <span class={`hint ${before === null ? '' : 'ghost-key'}`}>
              <ComparePicker />
            </span>
          )}
          {isFiltered && <span class="hint">Requests are not filtered, so they are not shown</span>}
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
            bursts={bursts}
            annotations={annotations}
            zoom={(from, to) => go({ selectedRange: { from, to } })}
            showBurst={(burst) => go(burstView(burst))}
            showAnnotation={(id) => go({ open: { kind: 'annotation', value: id } })}
          />
        )}
      </div>
      {lines !== null && <HostLegend panes={panes} />}
      <Annotations annotations={annotations} />
      {lines === null && by === 'action' && <ActionLegend panes={panes} />}
    </Panel>
  );
}

function ModeSwitch() {
  const { view, go } = useApp();
  const modes: { by: Split; title: string; hint: string }[] = [
    { by: 'category', title: 'By category', hint: 'Attacks of each category' },
    { by: 'action', title: 'Blocked', hint: 'Attacks that were blocked, and those that were only detected' },
    { by: 'host', title: 'By host', hint: `A line for each of up to ${HOST_LINES_MAX} hosts` },
  ];
  return (
    <div class="segments compact" role="group" aria-label="Show">
      {modes.map(({ by, title, hint }) => (
        <button
          key={title}
          type="button"
          title={hint}
          aria-pressed={view.by === by}
          onClick={() => go({ by }, 'replace')}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

function HostLegend({ panes }: { panes: readonly Pane[] }) {
  const { go } = useApp();
  const [{ layers } = { layers: [] }] = panes;
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

/** A click shows the attacks of one action. */
function ActionLegend({ panes }: { panes: readonly Pane[] }) {
  const { view, go } = useApp();
  const layers = panes.find(({ name }) => name === 'attacks')?.layers ?? [];
  return (
    <div class="legend" role="group" aria-label="Actions">
      {layers.map(({ key, title, counts, colour }) => (
        <button
          key={key}
          class="key"
          type="button"
          title={`Show only attacks that were ${title.toLowerCase()}`}
          style={{ '--key': `var(--${colour})` }}
          onClick={() => go({ filters: only(view.filters, 'action', key) })}
        >
          {title}
          <b>{formatCount(total(counts))}</b>
        </button>
      ))}
    </div>
  );
}

function periodPanes(
  { counts }: Dashboard,
  before: Period | null,
  filters: readonly Filter[],
  by: Split,
): Pane[] {
  const counted = countedCategories(filters);
  const totals = totalsOf(counts.attacks);
  // The largest category is at the bottom.
  const names = byAttacks(totals).filter((name) => counted.includes(name) && totals[name] > 0);
  const layerOf = (name: AttackType): Layer => ({
    key: name,
    title: CATEGORY_NAMES[name],
    counts: counts.attacks[name],
    colour: `category-${name}`,
  });
  const [all, blocked] = [sumOf(counts.attacks, counted), sumOf(counts.blocked, counted)];
  const actions: Layer[] = [
    { key: 'block', title: 'Blocked', counts: blocked, colour: 'good' },
    {
      key: 'log',
      title: 'Only detected',
      counts: all.map((n, i) => n - (blocked[i] ?? 0)),
      colour: 'attack',
    },
  ];
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
      layers: by === 'action' ? actions : names.map(layerOf),
      ghost: before && sumOf(before.counts.attacks, counted),
    },
  ];
}

function hostPanes({ hosts }: HostLines): Pane[] {
  const lines = (countsOf: (host: HostFigures) => readonly number[]) =>
    hosts.map((host, i): Layer => {
      const colour = LINE_COLOURS[i] ?? 'edge';
      return { key: host.id, title: host.hostname, counts: countsOf(host), colour };
    });
  const common = { kind: 'lines', ghost: null } as const;
  return [
    { ...common, name: 'requests', title: 'Requests', layers: lines(({ requests }) => requests) },
    { ...common, name: 'attacks', title: 'Attacks', layers: lines(({ attacks }) => attacks) },
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
  const { filters } = view;
  const parameters = { timezone: zone.id };
  const saveCsv = () =>
    run(async () => {
      const hosts = view.hosts.length === 0 ? undefined : view.hosts;
      const content = await timelineCsv(api.client(project.id), { ...range, ...parameters, hosts }, filters);
      download(name('csv'), content);
    });
  const hasRequests = keptFilters(filters).length === 0;
  const curl = [
    ...(hasRequests ? [curlCommand({ ...query, path: 'event/timeline', parameters })] : []),
    curlCommand({ ...query, filters, path: 'overviews/attack/timeline', parameters }),
  ];
  const timezone = `--timezone ${zone.id}`;
  const commands = [
    ...(hasRequests ? [wafstatCommand(`timeline ${timezone}`, query)] : []),
    wafstatCommand(`timeline --by category ${timezone}`, { ...query, filters }),
  ];
  return [
    { label: 'Download PNG', run: savePng },
    { label: 'Download CSV', run: saveCsv },
    ...copyItems(curl.join('\n'), commands.join('\n')),
  ];
}

/** Every point of the API, which are more than those that are drawn, of the attacks that the filters select. */
async function timelineCsv(
  client: Client,
  query: StatisticsQuery & TimeRange,
  filters: readonly Filter[],
): Promise<string> {
  const hasRequests = keptFilters(filters).length === 0;
  const [requests, categories] = await Promise.all([
    hasRequests ? client.timeline(query).then((timeline) => timeline.requests) : null,
    client.attackTimeline({ ...query, ...apiFilter(filters) }),
  ]);
  const counted = countedCategories(filters);
  const columns = categories.filter(({ key }) => counted.includes(key));
  const points = categories[0]?.timeline ?? [];
  const rows = points.map(({ time }, i) => {
    const attacks = columns.map(({ timeline }) => timeline[i]?.num ?? 0);
    const edges = [points[i - 1]?.time ?? query.from, time].map((edge) => new Date(edge).toISOString());
    return [...edges, ...(requests ? [requests[i]?.num ?? 0] : []), total(attacks), ...attacks];
  });
  const names = ['from', 'to', ...(requests ? ['requests'] : []), 'attacks'];
  return csv([[...names, ...columns.map(({ key }) => key)], ...rows]);
}
