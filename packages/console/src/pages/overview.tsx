/** All projects and hosts at a glance: traffic, attack rate and change. */
import { useMemo, useRef, useState } from 'preact/hooks';
import type { Api, Project } from '../api.ts';
import { mayRead, useApp } from '../app.ts';
import { change, compactCount, formatCount, plural, share } from '../format.ts';
import { Controls } from '../parts/controls.tsx';
import { PageHead, PageLink } from '../parts/frame.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { SPARKLINE_KEY, Sparkline } from '../parts/sparkline.tsx';
import { Failure, Message, Skeleton } from '../parts/states.tsx';
import { VirtualGrid } from '../parts/virtual-grid.tsx';
import { countsBetween } from '../points.ts';
import { endsNow, previousRange, previousShift, resolveRange, type TimeRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { SORTS, type Sort, type View } from '../view.ts';

const LINE_POINTS = 48;
const TILE_HEIGHT = 134;
/** Its numbers fit in two columns. */
const TILE_WIDTH_MIN = 256;
/** A project can have thousands of hosts. */
const OVERVIEW_REFRESH_MS = 30_000;

interface Line {
  requests: readonly number[];
  attacks: readonly number[];
}

interface Tile {
  key: string;
  title: string;
  project: Project;
  /** Null: the whole project. */
  host: string | null;
  requests: number;
  attacks: number;
  attacksBefore: number;
}

export function OverviewPage() {
  const { api, session, view, zone, now, go } = useApp();
  const projects = session.projects.filter(mayRead);
  const query = useQuery(
    JSON.stringify([projects.map(({ id }) => id), view.selectedRange, zone.id]),
    async (signal) => {
      const range = resolveRange(view.selectedRange, zone, now());
      const before = previousRange(range, previousShift(view.selectedRange, range, zone), zone);
      const tiles = await Promise.all(
        projects.map((project) => readTiles(api, project, range, before, signal)),
      );
      return { range, tiles: tiles.flat() };
    },
    { refresh: view.live && endsNow(view.selectedRange), refreshMs: OVERVIEW_REFRESH_MS },
  );
  const { data, failure, reload, isLoading } = query;
  return (
    <div class="page overview">
      <PageHead level={1} title="Overview">
        <p class="hint">{data !== null && `${countText(data.tiles)}. ${SPARKLINE_KEY}.`}</p>
      </PageHead>
      <Controls query={query}>
        <SearchBox
          name="Find a project or host"
          value={view.search}
          search={(search) => go({ search }, 'replace')}
        />
        <select
          aria-label="Sort by"
          value={view.sort ?? DEFAULT_SORT}
          onChange={(event) => go({ sort: event.currentTarget.value as Sort })}
        >
          {SORTS.map((name) => (
            <option key={name} value={name}>
              {SORT_NAMES[name]}
            </option>
          ))}
        </select>
      </Controls>
      <div class={`content ${isLoading ? 'stale' : ''}`} aria-busy={isLoading}>
        {failure !== null && data === null && <Failure failure={failure} retry={reload} />}
        {data === null && failure === null && <Skeleton />}
        {data !== null && <Tiles tiles={shownTiles(data.tiles, view)} range={data.range} />}
      </div>
    </div>
  );
}

function Tiles({ tiles, range }: { tiles: readonly Tile[]; range: TimeRange }) {
  const { session } = useApp();
  const { lines, load } = useLines(range);
  if (tiles.length === 0)
    return <Message title="No matching host">No project or host matches the search.</Message>;
  const tile = (one: Tile) => (
    <TileCard tile={one} line={lines.get(one.key)} hasProject={session.projects.length > 1} />
  );
  const grid = {
    keyOf: ({ key }: Tile) => key,
    tileHeight: TILE_HEIGHT,
    tileWidthMin: TILE_WIDTH_MIN,
    onVisible: load,
  };
  const sections = {
    Projects: tiles.filter(({ host }) => host === null),
    Hosts: tiles.filter(({ host }) => host !== null),
  };
  return Object.entries(sections).map(
    ([name, items]) =>
      items.length > 0 && (
        <section key={name}>
          <h2>{name}</h2>
          <VirtualGrid {...grid} name={name} items={items}>
            {tile}
          </VirtualGrid>
        </section>
      ),
  );
}

function TileCard({ tile, line, hasProject }: { tile: Tile; line: Line | undefined; hasProject: boolean }) {
  const { title, project, host, requests, attacks } = tile;
  return (
    <PageLink
      class="tile"
      to={{ page: 'dashboard', project: project.id, hosts: host === null ? [] : [host], search: '' }}
      title={`${title}: ${formatCount(requests)} requests, ${formatCount(attacks)} attacks (previous period: ${formatCount(tile.attacksBefore)})`}
    >
      <strong>{title}</strong>
      {hasProject && host !== null && <span class="hint">{project.name}</span>}
      {line === undefined ? <span class="skeleton line" /> : <Sparkline {...line} />}
      <span class="numbers">
        <span>
          <b>{compactCount(requests)}</b> requests
        </span>
        <span>
          <b class={attacks > 0 ? 'attack' : 'faint'}>{compactCount(attacks)}</b>{' '}
          {attacks === 1 ? 'attack' : 'attacks'}
        </span>
        <span>
          <b class={attacks > 0 ? 'attack' : 'faint'}>{share(attacks, requests)}</b> attack rate
        </span>
        <span>{changeText(tile)}</span>
      </span>
    </PageLink>
  );
}

function changeText({ attacks, attacksBefore }: Tile): string {
  if (attacks === attacksBefore) return attacks === 0 ? 'no attacks' : 'no change';
  return attacksBefore === 0 ? 'no attacks before' : `attacks ${change(attacks, attacksBefore).text}`;
}

/** The project and its hosts, with the same previous period as on the dashboard. */
async function readTiles(
  api: Api,
  project: Project,
  range: TimeRange,
  before: TimeRange,
  signal: AbortSignal,
): Promise<Tile[]> {
  const [all, past] = await Promise.all([
    api.figures(project.id, { ...range, signal }),
    api.figures(project.id, { ...before, signal }),
  ]);
  const attacksBefore = new Map(past.items.map(({ id, attacks }) => [id, attacks[0] ?? 0]));
  const tile = (title: string, host: string | null, { requests, attacks }: Line): Tile => ({
    key: `${project.id} ${host}`,
    title,
    project,
    host,
    requests: requests[0] ?? 0,
    attacks: attacks[0] ?? 0,
    attacksBefore: (host === null ? past.attacks[0] : attacksBefore.get(host)) ?? 0,
  });
  return [
    tile(project.name, null, all),
    ...all.items.map(({ id, hostname, ...counts }) => tile(hostname, id, counts)),
  ];
}

/** Loads the lines of the tiles on the screen only, once for each range. Until then, a tile keeps its line. */
function useLines(range: TimeRange) {
  const { api, handleSignedOut } = useApp();
  const [lines, setLines] = useState<ReadonlyMap<string, Line>>(new Map());
  const latest = useRef(range);
  latest.current = range;
  const load = useMemo(() => {
    const requested = new Set<string>();
    return async (tiles: readonly Tile[]): Promise<void> => {
      const missing = tiles.filter(({ key }) => !requested.has(key));
      if (missing.length === 0) return;
      for (const { key } of missing) requested.add(key);
      try {
        const found = await readLines(api, missing, range);
        if (latest.current === range) setLines((known) => new Map([...known, ...found]));
      } catch (failure) {
        for (const { key } of missing) requested.delete(key);
        handleSignedOut(failure);
      }
    };
  }, [range]);
  return { lines, load };
}

async function readLines(api: Api, tiles: readonly Tile[], range: TimeRange): Promise<[string, Line][]> {
  const projects = [...new Set(tiles.map(({ project }) => project.id))];
  const parts = projects.map(async (project): Promise<[string, Line][]> => {
    const own = tiles.filter((tile) => tile.project.id === project);
    const hosts = own.flatMap(({ host }) => (host === null ? [] : [host]));
    const [whole, figures] = await Promise.all([
      own.some(({ host }) => host === null) ? readProjectLine(api, project, range) : null,
      hosts.length === 0 ? null : api.figures(project, { ...range, hosts, points: LINE_POINTS }),
    ]);
    return [
      ...(whole === null ? [] : [[`${project} null`, whole] as [string, Line]]),
      ...(figures?.items ?? []).map((line): [string, Line] => [`${project} ${line.id}`, line]),
    ];
  });
  return (await Promise.all(parts)).flat();
}

async function readProjectLine(api: Api, project: string, range: TimeRange): Promise<Line> {
  const { requests, attacks } = await api.client(project).timeline(range);
  const step = (range.to - range.from) / LINE_POINTS;
  const edges = Array.from({ length: LINE_POINTS + 1 }, (_, i) => range.from + i * step);
  return { requests: countsBetween(edges, requests), attacks: countsBetween(edges, attacks) };
}

const DEFAULT_SORT: Sort = 'attacks';

const SORT_NAMES: Readonly<Record<Sort, string>> = {
  attacks: 'Most attacks',
  rate: 'Highest attack rate',
  change: 'Largest increase of attacks',
  requests: 'Most requests',
  name: 'Name',
};

const NUMBER_OF: Readonly<Record<Exclude<Sort, 'name'>, (tile: Tile) => number>> = {
  attacks: ({ attacks }) => attacks,
  rate: ({ attacks, requests }) => attacks / Math.max(1, requests),
  change: ({ attacks, attacksBefore }) => attacks - attacksBefore,
  requests: ({ requests }) => requests,
};

function shownTiles(tiles: readonly Tile[], { search, sort: chosen }: View): Tile[] {
  const sort = chosen ?? DEFAULT_SORT;
  const wanted = search.trim().toLowerCase();
  const found = tiles.filter(
    ({ title, project }) =>
      title.toLowerCase().includes(wanted) || project.name.toLowerCase().includes(wanted),
  );
  const byName = (a: Tile, b: Tile) => a.title.localeCompare(b.title, 'en', { numeric: true });
  if (sort === 'name') return found.toSorted(byName);
  const numberOf = NUMBER_OF[sort];
  return found.toSorted((a, b) => numberOf(b) - numberOf(a) || byName(a, b));
}

function countText(tiles: readonly Tile[]): string {
  const hosts = tiles.filter(({ host }) => host !== null).length;
  return `${plural(tiles.length - hosts, 'project')}, ${plural(hosts, 'host')}`;
}
