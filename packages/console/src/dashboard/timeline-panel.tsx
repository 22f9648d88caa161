/** The timeline: requests above, attacks below, by category or by host. */
import type { AttackType, Point } from '@wafstat/client';
import { useMemo, useRef, useState } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { byAttacks, CATEGORY_NAMES, pointsOf, totalsOf } from '../categories.ts';
import { chartPng, csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { Icon } from '../parts/icon.tsx';
import type { MenuItem } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Table } from '../parts/table.tsx';
import { countsBetween, drawnEdges, total } from '../points.ts';
import { remPx } from '../theme.ts';
import { countedCategories, toggleCategory, toggleExcluded, type View } from '../view.ts';
import { offsetName, segmentsOf, type Zone } from '../zone.ts';
import { Chart } from './chart.tsx';
import { type DashboardData, HOST_LINES_MAX } from './data.ts';
import type { Layer, Pane } from './pane.ts';

/** Narrower steps cannot be told apart. */
const POINT_WIDTH_REM = 0.3;

/** Of the lines of hosts, in their order. */
const LINE_COLOURS = [
  'accent',
  'attack',
  ...['xss', 'sqli', 'robot', 'cmdi', 'whiteblackip', 'webshell', 'rfi', 'illegal'].map(
    (name) => `category-${name}`,
  ),
];

export interface TimelinePanelProps {
  data: DashboardData;
  /** Null: there is no earlier data to compare with. */
  hasPrevious: boolean;
}

export function TimelinePanel({ data, hasPrevious }: TimelinePanelProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const box = useRef<HTMLDivElement>(null);
  const [isTable, setTable] = useState(false);
  const { edges, panes } = useMemo(
    () => drawingOf(data, view, zone, hasPrevious, (box.current?.clientWidth ?? 900) - 60),
    [data, view.categories, view.excluded, zone, hasPrevious],
  );
  const label = `Timeline: ${panes.map(summary).join(', ')}. Use the arrow keys to read the points, with Shift to select, Enter to zoom in, or open the table.`;
  return (
    <Panel
      title="Timeline"
      class="timeline"
      extras={
        <>
          <ModeSwitch />
          <span class="hint step">{`per ${stepName(edges)}`}</span>
          {hasPrevious && <span class="hint ghost-key">previous period</span>}
          <button
            class="button quiet small"
            type="button"
            aria-expanded={isTable}
            onClick={() => setTable(!isTable)}
          >
            <Icon name="table" />
            Table
          </button>
        </>
      }
      exports={useExports(data, panes, box)}
    >
      <div ref={box}>
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
      {view.byHost ? <HostLegend panes={panes} /> : <CategoryLegend data={data} />}
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

/** Lists the categories that have attacks. Each filters. */
function CategoryLegend({ data: { types } }: { data: DashboardData }) {
  const { view, go } = useApp();
  const counted = countedCategories(view);
  const names = byAttacks(types).filter((name) => types[name] > 0);
  if (names.length === 0) return <p class="legend hint">No attacks in this range</p>;
  return (
    <div class="legend" role="group" aria-label="Categories">
      {names.map((name) => (
        <button
          key={name}
          class={`key ${counted.includes(name) ? '' : 'off'}`}
          type="button"
          title="Click to filter by this category; Alt-click to exclude it"
          aria-pressed={view.categories.includes(name)}
          style={{ '--key': `var(--category-${name})` }}
          onClick={(event) => go(event.altKey ? toggleExcluded(view, name) : toggleCategory(view, name))}
        >
          {CATEGORY_NAMES[name]}
          <b>{formatCount(types[name])}</b>
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

interface Drawing {
  edges: number[];
  panes: Pane[];
}

function drawingOf(
  data: DashboardData,
  view: View,
  zone: Zone,
  hasPrevious: boolean,
  width: number,
): Drawing {
  const { now, before } = data;
  const pointsMax = Math.max(40, width / (POINT_WIDTH_REM * remPx()));
  const ends = now.timeline.requests.map(({ time }) => time);
  const edges = drawnEdges(ends, now.range.from, zone, pointsMax, now.gridMs);
  const shiftMs = now.range.from - before.range.from;
  const shifted = edges.map((edge) => edge - shiftMs);
  const counted = countedCategories(view);
  const ghost = (points: readonly Point[]) => (hasPrevious ? countsBetween(shifted, points) : null);
  const attacksBefore = sumOf(
    before.categories.filter(({ key }) => counted.includes(key)).map(({ timeline }) => timeline),
  );
  if (data.hostTimelines !== null) {
    const lines = (name: 'requests' | 'attacks') =>
      (data.hostTimelines ?? []).map(({ id, hostname, [name]: points }, i): Layer => {
        const colour = LINE_COLOURS[i] ?? 'edge';
        return { key: id, title: hostname, counts: countsBetween(edges, points), colour };
      });
    return {
      edges,
      panes: [
        { name: 'requests', title: 'Requests', kind: 'lines', layers: lines('requests'), ghost: null },
        { name: 'attacks', title: 'Attacks', kind: 'lines', layers: lines('attacks'), ghost: null },
      ],
    };
  }
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
  return {
    edges,
    panes: [
      {
        name: 'requests',
        title: 'Requests',
        kind: 'area',
        layers: [{ key: 'requests', title: 'Requests', counts: requests, colour: 'accent' }],
        ghost: ghost(before.timeline.requests),
      },
      {
        name: 'attacks',
        title: 'Attacks',
        kind: 'stack',
        layers: names.map(layerOf),
        ghost: ghost(attacksBefore),
      },
    ],
  };
}

/** All series have the same points. */
function sumOf(series: readonly (readonly Point[])[]): Point[] {
  const [first = []] = series;
  return first.map(({ time }, i) => ({ time, num: total(series.map((points) => points[i]?.num ?? 0)) }));
}

function summary({ title, layers }: Pane): string {
  return `${title} ${formatCount(total(layers.map(({ counts }) => total(counts))))}`;
}

/** The length of a point; the first and the last may be shorter. */
function stepName(edges: readonly number[]): string {
  return duration(Math.max(0, ...edges.slice(1).map((edge, i) => edge - (edges[i] ?? edge))));
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

function useExports(
  data: DashboardData,
  panes: readonly Pane[],
  box: { current: HTMLElement | null },
): MenuItem[] {
  const { view, zone } = useApp();
  const project = useProject();
  const { range } = data.now;
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
    { label: 'Download CSV', run: () => download(name('csv'), timelineCsv(data, view)) },
    { label: 'Copy as curl', copy: curl.join('\n') },
    { label: 'Copy as command line', copy: commands.join('\n') },
  ];
}

/** Every point of the API, not merged. */
function timelineCsv({ now }: DashboardData, view: View): string {
  const counted = countedCategories(view);
  const columns: { name: string; points: readonly Point[] }[] = [
    { name: 'requests', points: now.timeline.requests },
    { name: 'attacks', points: now.timeline.attacks },
    ...now.categories
      .filter(({ key }) => counted.includes(key))
      .map(({ key, timeline }) => ({ name: key, points: timeline })),
  ];
  const ends = now.timeline.requests.map(({ time }) => time);
  const rows = ends.map((end, i) => [
    new Date(ends[i - 1] ?? now.range.from).toISOString(),
    new Date(end).toISOString(),
    ...columns.map(({ points }) => points[i]?.num ?? 0),
  ]);
  return csv([['from', 'to', ...columns.map(({ name }) => name)], ...rows]);
}
