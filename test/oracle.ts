/** Expected results: counts the single events in the range. Written from the rules of the API, without server code. */
import type { Distribution, Timeline } from './api.ts';

export const CATEGORIES = [
  'xss',
  'sqli',
  'cmdi',
  'cc',
  'custom',
  'illegal',
  'lfi',
  'robot',
  'antitamper',
  'rfi',
  'vuln',
  'whiteblackip',
  'webshell',
] as const;

export interface KnownEvent {
  time: number;
  hostname: string | null;
  request: boolean;
  attack: (typeof CATEGORIES)[number] | null;
  count: number;
}

export interface Query {
  from: number;
  to: number;
  offsetMinutes: number;
  /** Undefined: the whole project, including events without a host. */
  hostnames: ReadonlySet<string> | undefined;
}

export class Oracle {
  /** By time. */
  readonly #events: readonly KnownEvent[];

  constructor(events: readonly KnownEvent[]) {
    this.#events = events.toSorted((a, b) => a.time - b.time);
  }

  timeline(query: Query): Timeline {
    const ends = pointEnds(query);
    const requests = ends.map((time) => ({ time, num: 0 }));
    const attacks = ends.map((time) => ({ time, num: 0 }));
    let point = 0;
    for (const { time, request, attack, count } of this.#matching(query)) {
      while (time >= (ends[point] ?? Number.POSITIVE_INFINITY)) point++;
      const [inRequests, inAttacks] = [requests[point], attacks[point]];
      if (inRequests === undefined || inAttacks === undefined)
        throw new Error('an event after the last point');
      if (request) inRequests.num += count;
      if (attack !== null) inAttacks.num += count;
    }
    return { requests, attacks };
  }

  distribution(query: Query): Distribution {
    const counts: Distribution = Object.fromEntries(CATEGORIES.map((category) => [category, 0]));
    for (const { attack, count } of this.#matching(query)) {
      if (attack !== null) counts[attack] = (counts[attack] ?? 0) + count;
    }
    return counts;
  }

  #matching({ from, to, hostnames }: Query): KnownEvent[] {
    const inRange = this.#events.slice(this.#firstAtOrAfter(from), this.#firstAtOrAfter(to));
    return hostnames
      ? inRange.filter(({ hostname }) => hostname !== null && hostnames.has(hostname))
      : inRange;
  }

  /** The position of the first event that is not before `time`. */
  #firstAtOrAfter(time: number): number {
    let [low, high] = [0, this.#events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#events[middle]?.time ?? 0) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** The times in the range that are multiples of the interval in local time, and the end of the range. */
export function pointEnds({
  from,
  to,
  offsetMinutes,
}: Pick<Query, 'from' | 'to' | 'offsetMinutes'>): number[] {
  if (from === to) return [];
  const intervalMs = intervalOf(to - from);
  const localMs = from + offsetMinutes * MINUTE_MS;
  const sinceBoundaryMs = ((localMs % intervalMs) + intervalMs) % intervalMs;
  const ends: number[] = [];
  for (let end = from - sinceBoundaryMs + intervalMs; end < to; end += intervalMs) ends.push(end);
  return [...ends, to];
}

function intervalOf(rangeMs: number): number {
  if (rangeMs <= DAY_MS) return MINUTE_MS;
  if (rangeMs <= 3 * DAY_MS) return 5 * MINUTE_MS;
  if (rangeMs <= 7 * DAY_MS) return 10 * MINUTE_MS;
  if (rangeMs <= 31 * DAY_MS) return 60 * MINUTE_MS;
  return DAY_MS;
}

/** `+05:45` for 345. */
export function timezoneText(offsetMinutes: number): string {
  const minutes = Math.abs(offsetMinutes);
  const digits = (n: number) => String(n).padStart(2, '0');
  return `${offsetMinutes < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`;
}
