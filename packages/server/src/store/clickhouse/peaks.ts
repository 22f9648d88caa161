/**
 * The busiest second of each point: of a project from its seconds, of a set of hosts from exact milliseconds. Seconds that
 * an edge cuts are always read exactly.
 */
import { FIRST_CATEGORY, GROUPS, REQUESTS } from '../cells.ts';
import { QueryTooLarge, type Selection, storedCategory } from '../store.ts';
import type { Snapshot } from './attempts.ts';
import { bucketsOf, CELLS, clip, counted, daysOf, ON_HOST_MINUTES, SERIES, TIME } from './count.ts';
import { planCells } from './plan.ts';
import { LEVELS, MINUTE_MS } from './schema.ts';
import type { Server } from './server.ts';

const SECOND_MS = 1_000;
/** A query of more cells is refused: this many take 5 s on two busy cores with ClickHouse 18.16. */
const CELLS_MAX = 50_000_000;

/** The count of each group, as columns n0, n1, ... */
const GROUP_SUMS = GROUPS.map((group, i) => {
  const series = group?.map((category) => FIRST_CATEGORY + storedCategory(category)) ?? [REQUESTS];
  return `sumIf(n, ${SERIES} IN (${series.join(', ')})) AS n${i}`;
}).join(', ');
const GROUP_PEAKS = GROUPS.map((_, i) => `max(n${i}) AS peak${i}`).join(', ');
const SECOND = `intDiv(${TIME}, ${SECOND_MS})`;

export function emptyPeaks(edges: readonly number[]): Float64Array[] {
  return GROUPS.map(() => new Float64Array(edges.length - 1));
}

export async function readPeaks(
  server: Server,
  snapshot: Snapshot,
  { hosts }: Selection,
  edges: readonly number[],
  cellsMax = CELLS_MAX,
): Promise<Float64Array[]> {
  const peaks = emptyPeaks(edges);
  const clipped = clip(edges, snapshot);
  const { whole, cut, cutCells } = planCells(clipped, SECOND_MS);
  if (whole === null && cut === null) return peaks;
  const rows = counted(snapshot, daysOf(clipped));
  const values = {
    ...rows.values,
    ...bucketsOf(clipped),
    hosts: snapshot.hosts,
    firstMinute: Math.floor((clipped[0] ?? 0) / MINUTE_MS),
    endMinute: Math.ceil((clipped.at(-1) ?? 0) / MINUTE_MS),
    cutSeconds: cutCells,
    cutMinutes: [...new Set(cutCells.map((second) => Math.floor(second / 60)))],
  };
  const inRange = `${rows.where} AND minute >= {firstMinute:UInt32} AND minute < {endMinute:UInt32}`;
  const exact =
    hosts === undefined
      ? `${inRange} AND ${ON_HOST_MINUTES}`
      : `${inRange} AND ${ON_HOST_MINUTES} AND host IN {hosts:Array(UInt32)}`;
  const seconds = hosts === undefined ? `${inRange} AND level = ${LEVELS.projectMinute}` : exact;
  const [size] = await server.select<{ n: string }>(
    `SELECT sum(length(codes)) AS n FROM cells WHERE ${seconds}`,
    values,
  );
  if (Number(size?.n ?? 0) > cellsMax) throw new QueryTooLarge();
  const [inWhole, inCut] = await Promise.all([
    whole === null
      ? []
      : server.select<Record<string, string>>(
          `SELECT intDiv(second + {shift:UInt64}, {width:UInt64}) AS slot, ${GROUP_PEAKS} FROM (
             SELECT ${SECOND} AS second, ${GROUP_SUMS} FROM ${CELLS}
             WHERE ${seconds} AND ${SECOND} >= {from:UInt64} AND ${SECOND} < {to:UInt64}
               ${cut === null ? '' : `AND ${SECOND} NOT IN {cutSeconds:Array(UInt64)}`}
             GROUP BY second
           ) GROUP BY slot`,
          { ...values, from: whole.from, to: whole.to, shift: whole.shift, width: whole.width },
        ),
    cut === null
      ? []
      : server.select<Record<string, string>>(
          `SELECT ${SECOND} AS second, intDiv(${TIME} + {shift:UInt64}, {width:UInt64}) AS slot, ${GROUP_SUMS}
           FROM ${CELLS}
           WHERE ${exact} AND minute IN {cutMinutes:Array(UInt32)}
             AND ${SECOND} IN {cutSeconds:Array(UInt64)}
             AND ${TIME} >= {from:UInt64} AND ${TIME} < {to:UInt64}
           GROUP BY second, slot`,
          { ...values, from: cut.from, to: cut.to, shift: cut.shift, width: cut.width },
        ),
  ]);
  const raise = (group: number, point: number, n: number) => {
    const row = peaks[group] as Float64Array;
    row[point] = Math.max(row[point] ?? 0, n);
  };
  for (const row of inWhole) {
    const point = whole?.pointOf(Number(row.slot)) ?? 0;
    for (const group of GROUPS.keys()) raise(group, point, Number(row[`peak${group}`]));
  }
  // A second may have several slots in a point.
  const sums = new Map<string, Float64Array>();
  for (const row of inCut) {
    const point = cut?.pointOf(Number(row.slot)) ?? 0;
    const key = `${point} ${row.second}`;
    const sum = sums.get(key) ?? new Float64Array(GROUPS.length);
    sums.set(key, sum);
    for (const group of GROUPS.keys()) {
      sum[group] = (sum[group] ?? 0) + Number(row[`n${group}`]);
      raise(group, point, sum[group] ?? 0);
    }
  }
  return peaks;
}
