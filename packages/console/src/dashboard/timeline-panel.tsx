/** The timeline: requests above, attacks below, by category or by host. */
import type { AttackType, Point } from '@wafstat/client';
import { useMemo, useRef, useState } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { byAttacks, CATEGORY_NAMES, pointsOf, totalsOf } from '../categories.ts';
import { chartPng, csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { ALL_CATEGORIES, copyItems, type MenuItem } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Table } from '../parts/table.tsx';
import { countsBetween, drawnEdges, pointLength, total } from '../points.ts';
import { remPx } from '../theme.ts';
import { edgesBefore } from '../time-range.ts';
import { countedCategories, filtersCategories, type View } from '../view.ts';
import { offsetName, segmentsOf, type Zone } from '../zone.ts';
import { Chart } from './chart.tsx';
import { HOST_LINES_MAX, type HostTimeline, type Period, type PreviousPeriod } from './data.ts';
import type { Layer, Pane } from './pane.ts';

/** Narrower steps cannot be told apart. */
const POINT_WIDTH_REM = 0.3;

/** Colours of the lines of hosts, in their order. */
const LINE_COLOURS = [
  'accent',
  'attack',
  ...['xss', 'sqli', 'robot', 'cmdi', 'whiteblackip', 'webshell', 'rfi', 'illegal'].map(
    (name) => `category-${name}`,
  ),
];

interface TimelinePanelProps {
  now: Period;
  /** Null: there is no earlier data, or it is still loading. */
  before: PreviousPeriod | null;
  /** Null: the view has no lines per host, or they are still loading. */
  hosts: readonly HostTimeline[] | null;
}

export function TimelinePanel({ now, before, hosts }: TimelinePanelProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const box = useRef<HTMLDivElement>(null);
  const [isTable, setTable] = useState(false);
  const { edges, panes } = useMemo(() => {
    const pointsMax = Math.max(40, ((box.current?.clientWidth ?? 900) - 60) / (POINT_WIDTH_REM * remPx()));
    const ends = now.timeline.requests.map(({ time }) => time);
    const drawn = drawnEdges(ends, now.range.from, zone, pointsMax, now.gridMs);
    if (hosts !== null) return { edges: drawn, panes: hostPanes(hosts, drawn) };
    const ghost = before && { ...before, edges: edgesBefore(drawn, before.shift, zone) };
    return { edges: drawn, panes: categoryPanes(now, ghost, view, drawn) };
  }, [now, before, hosts, view.categories, view.excluded, zone]);
  const label = `Timeline: ${panes.map(summary).join(', ')}. Use the arrow keys to read the points, with Shift to select, Enter to zoom in, or open the table.`;
  return (
    <Panel
      title="Timeline"
      class="timeline"
      extras={
        <>
          <ModeSwitch />
          <span class="hint step">{`per ${duration(pointLength(edges, zone))}`}</span>
          {before !== null && !view.byHost && <span class="hint ghost-key">previous period</span>}
          <Button kind="quiet small" aria-expanded={isTable} onClick={() => setTable(!isTable)} icon="table">
            Table
          </Button>
        </>
      }
      exports={useExports(now, panes, box)}
    >
      <div class="chart-box" ref={box}>
        {isTable ? (
          <TimelineTable edges={edges} panes={panes} zone={zone} />
        ) : (
          <Chart
            panes={panes}
            edges={edges}
            zone={zone}
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

function categoryPanes(
  now: Period,
  before: (Period & { edges: readonly number[] }) | null,
  view: View,
  edges: readonly number[],
): Pane[] {
  const counted = countedCategories(view);
  const ghost = (points: (period: Period) => readonly Point[]) =>
    before && countsBetween(before.edges, points(before));
  const requests = countsBetween(edges, now.timeline.requests);
  const totals = totalsOf(now.categories);
  // The largest category is at the bottom.
  const names = byAttacks(totals).filter((name) => counted.includes(name) && totals[name] > 0);
  const layerOf = (name: AttackType): Layer => ({
    key: name,
    title: CATEGORY_NAMES[name],
    counts: countsBetween(edges, pointsOf(now.categories, name)),
    colour: `category-${name}`,
  });
  return [
    {
      name: 'requests',
      title: 'Requests',
      kind: 'area',
      layers: [{ key: 'requests', title: 'Requests', counts: requests, colour: 'accent' }],
      ghost: ghost(({ timeline }) => timeline.requests),
    },
    {
      name: 'attacks',
      title: 'Attacks',
      kind: 'stack',
      layers: names.map(layerOf),
      ghost: ghost(({ categories }) => sumOf(counted.map((name) => pointsOf(categories, name)))),
    },
  ];
}

function hostPanes(hosts: readonly HostTimeline[], edges: readonly number[]): Pane[] {
  const lines = (name: 'requests' | 'attacks') =>
    hosts.map(({ id, hostname, [name]: points }, i): Layer => {
      const colour = LINE_COLOURS[i] ?? 'edge';
      return { key: id, title: hostname, counts: countsBetween(edges, points), colour };
    });
  return [
    { name: 'requests', title: 'Requests', kind: 'lines', layers: lines('requests'), ghost: null },
    { name: 'attacks', title: 'Attacks', kind: 'lines', layers: lines('attacks'), ghost: null },
  ];
}

/** All series have the same points. */
function sumOf(series: readonly (readonly Point[])[]): Point[] {
  const [first = []] = series;
  return first.map(({ time }, i) => ({ time, num: total(series.map((points) => points[i]?.num ?? 0)) }));
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
  const layers = panes.flatMap(({ title, layers: own }) =>
    panes.every(({ kind }) => kind === 'lines')
      ? own.map((layer) => ({ ...layer, title: `${layer.title}, ${title.toLowerCase()}` }))
      : own,
  );
  const rows = edges.slice(1).map((_, i) => i);
  return (
    <Table
      name="Timeline as a table"
      rows={rows}
      keyOf={(i) => String(edges[i])}
      columns={[
        { title: 'Time', cell: (i) => formatRange(edges[i] ?? 0, edges[i + 1] ?? 0, zone) },
        ...layers.map(({ title, counts }) => ({
          title,
          isNumber: true,
          cell: (i: number) => formatCount(counts[i] ?? 0),
        })),
      ]}
    />
  );
}

function useExports(now: Period, panes: readonly Pane[], box: { current: HTMLElement | null }): MenuItem[] {
  const { view, zone } = useApp();
  const project = useProject();
  const { range } = now;
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
  const query = { origin: location.origin, project: project.id, hosts: view.hosts };
  const segments = segmentsOf(range, zone);
  const curl = ['event/timeline', 'overviews/attack/timeline'].flatMap((path) =>
    segments.map(({ from, to, offset }) =>
      curlCommand({ ...query, from, to, path, parameters: { timezone: offset } }),
    ),
  );
  const commands = ['timeline', 'timeline --by category'].flatMap((command) =>
    segments.map(({ from, to, offset }) =>
      wafstatCommand(`${command} --timezone ${offset}`, { ...query, from, to }),
    ),
  );
  return [
    { label: 'Download PNG', run: savePng },
    { label: 'Download CSV', run: () => download(name('csv'), timelineCsv(now, view)) },
    ...copyItems(curl.join('\n'), commands.join('\n'), filtersCategories(view) ? ALL_CATEGORIES : undefined),
  ];
}

/** Every point of the API, not merged. The attacks are those of the selected categories. */
function timelineCsv(now: Period, view: View): string {
  const counted = countedCategories(view);
  const categories = now.categories.filter(({ key }) => counted.includes(key));
  const columns: { name: string; points: readonly Point[] }[] = [
    { name: 'requests', points: now.timeline.requests },
    { name: 'attacks', points: sumOf(categories.map(({ timeline }) => timeline)) },
    ...categories.map(({ key, timeline }) => ({ name: key, points: timeline })),
  ];
  const ends = now.timeline.requests.map(({ time }) => time);
  const rows = ends.map((end, i) => [
    new Date(ends[i - 1] ?? now.range.from).toISOString(),
    new Date(end).toISOString(),
    ...columns.map(({ points }) => points[i]?.num ?? 0),
  ]);
  return csv([['from', 'to', ...columns.map(({ name }) => name)], ...rows]);
}
