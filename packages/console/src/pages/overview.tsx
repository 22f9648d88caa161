/** All projects and hosts at a glance: traffic, attack rate and change. */
import { ATTACK_TYPES } from '@wafstat/client';
import type { Api, Project } from '../api.ts';
import { mayRead, useApp } from '../app.ts';
import { type Counts, sumOf } from '../counts.ts';
import { change, compactCount, formatCount, plural, share } from '../format.ts';
import { ComparePicker, Controls } from '../parts/controls.tsx';
import { PageHead, PageLink } from '../parts/frame.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { type Line, SPARKLINE_KEY, Sparkline } from '../parts/sparkline.tsx';
import { Failure, Message, Skeleton } from '../parts/states.tsx';
import { equalParts } from '../points.ts';
import {
  endsNow,
  previousRange,
  previousShift,
  RANGE_DAYS_MAX,
  resolveRange,
  type TimeRange,
} from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { SORTS, type Sort, type View } from '../view.ts';

const LINE_POINTS = 48;
const TILES = 96;
/** A project can have thousands of hosts. */
const OVERVIEW_REFRESH_MS = 30_000;

interface Tile {
  key: string;
  title: string;
  project: Project;
  /** Null: the whole project. */
  host: string | null;
  requests: number;
  attacks: number;
  /** Null: both periods together are longer than a query can be. */
  attacksBefore: number | null;
}

export function OverviewPage() {
  const { api, session, view, zone, now, go } = useApp();
  const projects = session.projects.filter(mayRead);
  const query = useQuery(
    JSON.stringify([projects.map(({ id }) => id), view.selectedRange, zone.id]),
    async (signal) => {
      const range = resolveRange(view.selectedRange, zone, now());
      const before = previousRange(
        range,
        previousShift(view.selectedRange, range, zone, view.compared),
        zone,
      );
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
        <ComparePicker />
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
  const { api, session, view } = useApp();
  const { limit, more } = useLimit(TILES, `${view.search} ${view.sort}`);
  const hosts = tiles.filter(({ host }) => host !== null);
  const sections = { Projects: tiles.filter(({ host }) => host === null), Hosts: hosts.slice(0, limit) };
  const shown = Object.values(sections).flat();
  const lines = useQuery(JSON.stringify([range, shown.map(({ key }) => key)]), (signal) =>
    readLines(api, shown, range, signal),
  );
  if (tiles.length === 0)
    return <Message title="No matching host">No project or host matches the search.</Message>;
  return (
    <>
      {Object.entries(sections).map(
        ([name, items]) =>
          items.length > 0 && (
            <section key={name}>
              <h2>{name}</h2>
              <ul class="tiles" aria-label={name}>
                {items.map((tile) => (
                  <li key={tile.key}>
                    <TileCard
                      tile={tile}
                      line={lines.data?.get(tile.key)}
                      hasProject={session.projects.length > 1}
                    />
                  </li>
                ))}
              </ul>
            </section>
          ),
      )}
      <More shown={sections.Hosts.length} all={hosts.length} more={more} />
    </>
  );
}

function TileCard({ tile, line, hasProject }: { tile: Tile; line: Line | undefined; hasProject: boolean }) {
  const { title, project, host, requests, attacks } = tile;
  return (
    <PageLink
      class="tile"
      to={{ page: 'dashboard', project: project.id, hosts: host === null ? [] : [host], search: '' }}
      title={`${title}: ${formatCount(requests)} requests, ${formatCount(attacks)} attacks (previous period: ${tile.attacksBefore === null ? 'unknown' : formatCount(tile.attacksBefore)})`}
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
  if (attacksBefore === null) return 'no previous period';
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
  // The second point is between the periods.
  const hasBefore = range.to - before.from <= RANGE_DAYS_MAX * 86_400_000;
  const edges = [hasBefore ? before.from : range.from, Math.min(before.to, range.from), range.from, range.to];
  const { items, ...whole } = await api.figures(project.id, { edges, byHost: true, signal });
  const tile = (title: string, host: string | null, { requests, attacks }: Line): Tile => {
    const [sum = 0, , attacksNow = 0] = attacks;
    const attacksBefore = hasBefore ? sum : null;
    const key = `${project.id} ${host}`;
    return { key, title, project, host, requests: requests[2] ?? 0, attacks: attacksNow, attacksBefore };
  };
  return [
    tile(project.name, null, lineOf(whole)),
    ...items.map((host) => tile(host.hostname, host.id, host)),
  ];
}

/** By the key of the tile. */
async function readLines(
  api: Api,
  tiles: readonly Tile[],
  range: TimeRange,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Line>> {
  const edges = equalParts(range, LINE_POINTS);
  const projects = [...new Set(tiles.map(({ project }) => project.id))];
  const parts = projects.map(async (project): Promise<[string, Line][]> => {
    const own = tiles.filter((tile) => tile.project.id === project);
    const hosts = own.flatMap(({ host }) => (host === null ? [] : [host]));
    const [whole, some] = await Promise.all([
      own.some(({ host }) => host === null) ? api.figures(project, { edges, signal }) : null,
      hosts.length === 0 ? null : api.figures(project, { edges, hosts, byHost: true, signal }),
    ]);
    const lines = (some?.items ?? []).map((host): [string, Line] => [`${project} ${host.id}`, host]);
    return whole === null ? lines : [[`${project} null`, lineOf(whole)], ...lines];
  });
  return new Map((await Promise.all(parts)).flat());
}

function lineOf({ requests, attacks }: Counts): Line {
  return { requests, attacks: sumOf(attacks, ATTACK_TYPES) };
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
  change: ({ attacks, attacksBefore }) => attacks - (attacksBefore ?? attacks),
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
