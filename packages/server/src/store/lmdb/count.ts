/** The read side: the sums of all rows in all points. The one way in which anything is counted. */
import { CATEGORIES } from '../../event.ts';
import { accumulate, accumulateTotals, runningTotals, sumOfTotals } from './cells.ts';
import { DecodedChunks } from './decoded.ts';
import { Groups } from './groups.ts';
import { COUNTERS, EXACT, planChunks } from './levels.ts';
import { allChanges, cellsKey, changesOf, type ProjectRecord, type Schema } from './schema.ts';
import { FIRST_CATEGORY, REQUESTS } from './tally.ts';

/** Which row of an answer a series adds to (negative: none), and how many rows there are. */
interface Rows {
  rowOf: Int8Array;
  rowCount: number;
}

export const TIMELINE_ROWS: Rows = { rowOf: rows((category) => (category === null ? 0 : 1)), rowCount: 2 };
export const DISTRIBUTION_ROWS: Rows = {
  rowOf: rows((category) => category ?? -1),
  rowCount: CATEGORIES.length,
};

/** `hosts` undefined: the whole project. Answers the points of the first row, then those of the next. */
export type Counter = (
  project: string,
  hosts: readonly string[] | undefined,
  edges: readonly number[],
) => Float64Array;

const HOUR_MS = 3_600_000;

/** A scope that has no counters in a chunk. */
const NOTHING = new Float64Array(0);

export function createCounter(schema: Schema, { rowOf, rowCount }: Rows): Counter {
  const decoded = new DecodedChunks();
  const groups = new Groups();
  const hostScopes = createHostScopes(schema);
  const key = Buffer.allocUnsafe(9);

  return (projectId, hosts, edges) => {
    const { cells } = schema;
    const points = edges.length - 1;
    const out = new Float64Array(rowCount * points);
    const project = schema.projects.get(projectId);
    if (project === undefined) return out;
    const scopes = hosts === undefined ? [project.scope] : hostScopes(project, hosts);
    const group = scopes.length > 1 ? groups.numberOf(scopes) : undefined;
    const everything = allChanges(schema);
    const plan = planChunks(clipped(edges, schema.meta.get('horizon') ?? 0, project));
    for (const { level, chunk, runs } of plan) {
      const read = (scope: number) => cells.getBinaryFast(cellsKey(level, chunk, scope, key));
      if (level === EXACT.id) {
        for (const scope of scopes) {
          const record = read(scope);
          if (record !== undefined) accumulate(record, runs, rowOf, points, out);
        }
      } else {
        const cellCount = COUNTERS[level]?.cells_per_chunk ?? 0;
        const changes = () => changesOf(cells, level, chunk, key);
        const totalsOf = decoded.chunk(level, chunk, everything, changes, (scope): Float64Array => {
          if (scope === group) return sumOfTotals(scopes.map(totalsOf));
          const record = read(scope);
          return record === undefined ? NOTHING : runningTotals(record, rowOf, rowCount, cellCount);
        });
        for (const scope of group === undefined ? scopes : [group]) {
          accumulateTotals(totalsOf(scope), cellCount, runs, points, out);
        }
      }
    }
    return out;
  };
}

/** Outside of what is left there is nothing: what is before the horizon has been pruned, or is about to be. */
function clipped(edges: readonly number[], horizon: number, { latest }: ProjectRecord): readonly number[] {
  // To the hour, not to the millisecond: a cut minute would have to be read in milliseconds.
  const behind = (Math.floor(latest / HOUR_MS) + 1) * HOUR_MS;
  if ((edges[0] ?? 0) >= horizon && (edges.at(-1) ?? 0) <= behind) return edges;
  return edges.map((edge) => Math.min(Math.max(edge, horizon), behind));
}

/** Bounds the memory: some 10 MB. */
const HOSTS_KNOWN_MAX = 100_000;

/** The scopes of hosts, in memory: a host is never removed, and its scope never changes. */
function createHostScopes(schema: Schema) {
  const known = new Map<string, number>();
  return (project: ProjectRecord, ids: readonly string[]): number[] => {
    const scopes = new Set<number>();
    for (const id of ids) {
      const name = `${project.scope} ${id}`;
      let scope = known.get(name);
      if (scope === undefined) {
        scope = schema.hosts.get([project.scope, id])?.scope;
        if (scope === undefined) continue;
        if (known.size >= HOSTS_KNOWN_MAX) known.clear();
        known.set(name, scope);
      }
      scopes.add(scope);
    }
    return [...scopes];
  };
}

function rows(rowOf: (category: number | null) => number): Int8Array {
  const table = new Int8Array(FIRST_CATEGORY + CATEGORIES.length);
  table[REQUESTS] = rowOf(null);
  for (const number of CATEGORIES.keys()) table[FIRST_CATEGORY + number] = rowOf(number);
  return table;
}
