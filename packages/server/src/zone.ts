/** Time zones: a fixed offset, or an IANA name whose offset changes. */
import { BoundedCache } from './cache.ts';

export interface Zone {
  /** `+08:00` or `Europe/Berlin`. */
  readonly name: string;
  /** Local time minus UTC, in milliseconds. */
  offsetAt(time: number): number;
  /** The changes of the offset after `from` and before `to`, in order. */
  changesIn(from: number, to: number): readonly OffsetChange[];
}

export interface OffsetChange {
  /** Milliseconds since the epoch. */
  at: number;
  /** The offset until then. */
  before: number;
  after: number;
}

/** A named zone takes 0.4 ms to set up, and up to 200 kB of memory. */
const ZONES_MAX = 32;
/** Created on first use, when metrics listen. */
let namedZones: BoundedCache<string, Zone> | undefined;

/** Throws an Error whose message says which values are allowed. */
export function zoneOf(name: string): Zone {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(name);
  if (match !== null) {
    const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
    if (minutes >= -12 * 60 && minutes <= 14 * 60) return new OffsetZone(minutes);
  }
  namedZones ??= new BoundedCache({ name: 'parameters', entriesMax: ZONES_MAX, unitBytes: 200_000 });
  // Names are valid in any case.
  const key = name.toLowerCase();
  const zone = namedZones.get(key) ?? namedZone(name);
  if (zone === null) {
    throw new Error(
      'must be an offset like +08:00, from -12:00 to +14:00, or an IANA time zone name like Europe/Berlin',
    );
  }
  namedZones.set(key, zone);
  return zone;
}

export class OffsetZone implements Zone {
  readonly name: string;
  readonly offsetMs: number;

  constructor(offsetMinutes: number) {
    const minutes = Math.abs(offsetMinutes);
    const digits = (number: number) => String(number).padStart(2, '0');
    this.name = `${offsetMinutes < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`;
    this.offsetMs = offsetMinutes * 60_000;
  }

  offsetAt(): number {
    return this.offsetMs;
  }

  changesIn(): OffsetChange[] {
    return [];
  }
}

export const UTC = new OffsetZone(0);

function namedZone(name: string): Zone | null {
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(name)) return null;
  try {
    return new NamedZone(name);
  } catch {
    return null;
  }
}

const DAY_MS = 86_400_000;
/** Changes are found by day and kept by span. A span takes about 1 ms, so the ten years of the longest range take 10 to 30 ms. */
const SPAN_MS = 366 * DAY_MS;
/** Spans of twenty ranges that have none in common. */
const SPANS_MAX = 200;
/** The latest time that `Intl` accepts. */
const TIME_MAX = 8.64e15;

class NamedZone implements Zone {
  readonly name: string;
  readonly #format: Intl.DateTimeFormat;
  readonly #spans = new BoundedCache<number, readonly OffsetChange[]>({ name: null, entriesMax: SPANS_MAX });

  constructor(name: string) {
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' });
    this.name = this.#format.resolvedOptions().timeZone;
  }

  /** Parses `7/1/2026, GMT+02:00`; plain `GMT` is UTC. */
  offsetAt(time: number): number {
    const match = /([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(this.#format.format(Math.min(time, TIME_MAX)));
    if (match === null) return 0;
    const seconds = Number(match[2]) * 3_600 + Number(match[3]) * 60 + Number(match[4] ?? 0);
    return (match[1] === '-' ? -1_000 : 1_000) * seconds;
  }

  changesIn(from: number, to: number): OffsetChange[] {
    const changes: OffsetChange[] = [];
    for (let span = Math.floor(from / SPAN_MS); span * SPAN_MS < to; span++) {
      changes.push(...this.#changesOf(span).filter(({ at }) => at > from && at < to));
    }
    return changes;
  }

  /** Those after the start of the span, until its end. */
  #changesOf(span: number): readonly OffsetChange[] {
    const known = this.#spans.get(span);
    if (known !== undefined) return known;
    const changes: OffsetChange[] = [];
    let before = this.offsetAt(span * SPAN_MS);
    for (let day = span * SPAN_MS + DAY_MS; day <= (span + 1) * SPAN_MS; day += DAY_MS) {
      const after = this.offsetAt(day);
      if (after !== before)
        changes.push({ at: this.#changeBetween(day - DAY_MS, day, before), before, after });
      before = after;
    }
    this.#spans.set(span, changes);
    return changes;
  }

  /** Zones change at a whole second. */
  #changeBetween(start: number, end: number, before: number): number {
    let [from, to] = [start, end];
    while (to - from > 1_000) {
      const middle = Math.floor((from + to) / 2_000) * 1_000;
      if (this.offsetAt(middle) === before) from = middle;
      else to = middle;
    }
    return to;
  }
}
