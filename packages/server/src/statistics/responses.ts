/** What the log says about responses: their codes, and the bytes of requests and responses. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { RESPONSE_CODES } from '../event.ts';
import { QueryTooLarge, type Store, type TimeRange } from '../store/store.ts';
import { type GridQuery, gridOf, type Points } from './points-cache.ts';

const MINUTE_MS = 60_000;

/** Of all codes together: 7 MB. Sites have about 20 codes; only an attacker writes logs with hundreds. */
const CODE_POINTS_MAX = 150_000;

/** The points of each code that occurs, ascending; requests without a code are the last, under `none`. */
export async function codePoints(
  store: Store,
  { isUpstream, ...query }: GridQuery & { isUpstream: boolean },
): Promise<Points & { keys: string[] }> {
  const { project, hosts } = query;
  const { edges } = gridOf(query);
  if (edges.length === 0) return { edges, counts: [], keys: [] };
  const rows = isUpstream ? 'upstreamCodes' : 'codes';
  const all = await store.count({ project, hosts, edges, rows });
  const occurring = [...all.entries()].filter(([, counts]) => counts.some((count) => count > 0));
  if (occurring.length * edges.length > CODE_POINTS_MAX)
    throw new QueryTooLarge(`list the points of ${occurring.length} response codes`);
  return {
    edges,
    counts: occurring.map(([, counts]) => counts),
    keys: occurring.map(([i]) => String(RESPONSE_CODES[i] || 'none')),
  };
}

export const BANDWIDTH_KEYS = ['IN_BANDWIDTH', 'OUT_BANDWIDTH', 'BANDWIDTH'] as const;

/** The whole minutes that a range touches: bytes are kept by minute. */
export function wholeMinutes({ from, to }: TimeRange): TimeRange {
  return { from: Math.floor(from / MINUTE_MS) * MINUTE_MS, to: Math.ceil(to / MINUTE_MS) * MINUTE_MS };
}

/** Bytes per second in each point: the average, or that of its busiest minute. */
export async function bandwidthPoints(
  store: Store,
  { isPeak, ...query }: GridQuery & { isPeak: boolean },
): Promise<Points> {
  const { project, hosts } = query;
  const { edges } = gridOf(query);
  if (edges.length === 0) return { edges, counts: [] };
  const { from, to } = wholeMinutes(query);
  const minutes = [from, ...edges.slice(1, -1).map((edge) => wholeMinutes({ from: edge, to }).from), to];
  const ratesOf = isPeak ? peakRates : averageRates;
  const counts = await ratesOf(
    async (part) => store.count({ project, hosts, edges: part, rows: 'traffic' }),
    minutes,
  );
  return { edges, counts };
}

type CountBytes = (edges: readonly number[]) => Promise<[bytesIn: Float64Array, bytesOut: Float64Array]>;

async function averageRates(count: CountBytes, edges: readonly number[]): Promise<Float64Array[]> {
  return withSum(await count(edges)).map((bytes) =>
    bytes.map((n, i) => rate(n, (edges[i + 1] ?? 0) - (edges[i] ?? 0))),
  );
}

/** How many minutes are counted at once: a week. Others take their turn in between. */
const MINUTES_MAX = 10_080;

async function peakRates(count: CountBytes, edges: readonly number[]): Promise<Float64Array[]> {
  const peaks = BANDWIDTH_KEYS.map(() => new Float64Array(edges.length - 1));
  const end = edges.at(-1) ?? 0;
  let point = 0;
  for (let start = edges[0] ?? 0; start < end; start += MINUTES_MAX * MINUTE_MS) {
    const length = Math.min(MINUTES_MAX, (end - start) / MINUTE_MS);
    await nextTurn();
    const totals = await count([start, start + length * MINUTE_MS]);
    if (totals.every(([bytes]) => bytes === 0)) continue;
    const minutes = Array.from({ length: length + 1 }, (_, i) => start + i * MINUTE_MS);
    const bytes = withSum(await count(minutes));
    for (let i = 0; i < length; i++) {
      while ((edges[point + 1] ?? end) <= (minutes[i] ?? 0)) point++;
      for (const [row, peak] of peaks.entries())
        peak[point] = Math.max(peak[point] ?? 0, rate(bytes[row]?.[i] ?? 0, MINUTE_MS));
    }
  }
  return peaks;
}

function withSum([bytesIn, bytesOut]: readonly Float64Array[]): Float64Array[] {
  const [one = new Float64Array(0), other = one] = [bytesIn, bytesOut];
  return [one, other, one.map((n, i) => n + (other[i] ?? 0))];
}

function rate(bytes: number, ms: number): number {
  return ms === 0 ? 0 : Math.round((bytes * 1_000) / ms);
}
