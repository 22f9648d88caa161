/**
 * What the answers must be: all events in a list by time, and for every question a walk through those of its
 * range. Written from the rules of the API alone, without a line of the server's, so that the two can only agree
 * by both being right.
 */
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

export interface Question {
  from: number;
  to: number;
  offset_minutes: number;
  /** Undefined: the whole project, events of no host included. */
  hostnames: ReadonlySet<string> | undefined;
}

export class Oracle {
  /** By time. */
  readonly #events: readonly KnownEvent[];

  constructor(events: readonly KnownEvent[]) {
    this.#events = events.toSorted((a, b) => a.time - b.time);
  }

  timeline(question: Question): Timeline {
    const ends = pointEnds(question);
    const requests = ends.map((time) => ({ time, num: 0 }));
    const attacks = ends.map((time) => ({ time, num: 0 }));
    let point = 0;
    for (const { time, request, attack, count } of this.#matching(question)) {
      while (time >= (ends[point] ?? Number.POSITIVE_INFINITY)) point++;
      const [inRequests, inAttacks] = [requests[point], attacks[point]];
      if (inRequests === undefined || inAttacks === undefined)
        throw new Error('an event after the last point');
      if (request) inRequests.num += count;
      if (attack !== null) inAttacks.num += count;
    }
    return { requests, attacks };
  }

  distribution(question: Question): Distribution {
    const counts: Distribution = Object.fromEntries(CATEGORIES.map((category) => [category, 0]));
    for (const { attack, count } of this.#matching(question)) {
      if (attack !== null) counts[attack] = (counts[attack] ?? 0) + count;
    }
    return counts;
  }

  #matching({ from, to, hostnames }: Question): KnownEvent[] {
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

/** Every moment inside the range at which the local clock shows a multiple of the interval, and the end of the range. */
export function pointEnds({
  from,
  to,
  offset_minutes,
}: Pick<Question, 'from' | 'to' | 'offset_minutes'>): number[] {
  if (from === to) return [];
  const intervalMs = intervalOf(to - from);
  const clock_ms = from + offset_minutes * MINUTE_MS;
  const sinceBoundary_ms = ((clock_ms % intervalMs) + intervalMs) % intervalMs;
  const ends: number[] = [];
  for (let end = from - sinceBoundary_ms + intervalMs; end < to; end += intervalMs) ends.push(end);
  return [...ends, to];
}

function intervalOf(range_ms: number): number {
  if (range_ms <= DAY_MS) return MINUTE_MS;
  if (range_ms <= 3 * DAY_MS) return 5 * MINUTE_MS;
  if (range_ms <= 7 * DAY_MS) return 10 * MINUTE_MS;
  if (range_ms <= 31 * DAY_MS) return 60 * MINUTE_MS;
  return DAY_MS;
}

/** `+05:45` for 345. */
export function timezoneText(offset_minutes: number): string {
  const minutes = Math.abs(offset_minutes);
  const digits = (n: number) => String(n).padStart(2, '0');
  return `${offset_minutes < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`;
}
