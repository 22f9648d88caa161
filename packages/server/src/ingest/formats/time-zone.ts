/** Time zones for logs whose times name none: a fixed offset, or an IANA name with daylight saving time. */
import { type OffsetChange, OffsetZone, type Zone, zoneOf } from '../../zone.ts';

export interface LocalZone {
  /** The text that `parseZone` accepts. */
  readonly name: string;
  /** Converts a local time, given as if it were UTC, to milliseconds since the epoch. */
  toUtc(localMs: number): number;
  /** A copy for one log: an IANA zone depends on the order of its lines when clocks are set back. */
  startLog?(state: ZoneState | null): LocalZone;
  /** Plain data, to continue in another process; null if the next time does not depend on earlier ones. */
  state?(): ZoneState | null;
}

/** The position of a log in an ambiguous hour. */
export interface ZoneState {
  /** When the clock was set back, in milliseconds since the epoch. */
  changeAt: number;
  /** The latest local time so far. */
  latest: number;
  /** Whether the log has reached the second pass of the hour. */
  isSecond: boolean;
}

/** Throws an Error whose message says which values are allowed. */
export function parseZone(text: string): LocalZone {
  return localZone(zoneOf(text));
}

export function fixedZone(offsetMinutes: number): LocalZone {
  return localZone(new OffsetZone(offsetMinutes));
}

function localZone(zone: Zone): LocalZone {
  if (!(zone instanceof OffsetZone)) return new IanaZone(zone, null);
  const { name, offsetMs } = zone;
  return { name, toUtc: (localMs) => localMs - offsetMs };
}

/** Lines of one log are out of order by less than this: workers write at nearly the same time. */
const DISORDER_MS_MAX = 10_000;
/** Lines later than this after an ambiguous hour no longer belong to it. */
const LATE_MS_MAX = 3_600_000;
const DAY_MS = 86_400_000;

class IanaZone implements LocalZone {
  readonly #zone: Zone;
  #state: ZoneState | null;
  /** The day of the last lookup: neighbouring lines have the same. */
  #day = Number.NaN;
  #change: OffsetChange = { at: 0, before: 0, after: 0 };

  constructor(zone: Zone, state: ZoneState | null) {
    this.#zone = zone;
    this.#state = state;
  }

  get name(): string {
    return this.#zone.name;
  }

  startLog(state: ZoneState | null): LocalZone {
    return new IanaZone(this.#zone, state === null ? null : { ...state });
  }

  state(): ZoneState | null {
    return this.#state;
  }

  toUtc(localMs: number): number {
    const { at, before, after } = this.#changeNear(localMs);
    if (localMs < at + Math.min(before, after)) return localMs - before;
    // A time in the gap, which no clock shows, is read with the offset before the change.
    if (after >= before) return localMs - (localMs < at + after ? before : after);
    return localMs - (this.#isSecondPass(at, localMs, at + before) ? after : before);
  }

  /** At `changeAt` the clock was set back, so that it showed the times up to `foldEnd` twice. */
  #isSecondPass(changeAt: number, localMs: number, foldEnd: number): boolean {
    if (localMs >= foldEnd + LATE_MS_MAX) {
      this.#state = null;
      return true;
    }
    if (this.#state?.changeAt !== changeAt) this.#state = { changeAt, latest: localMs, isSecond: false };
    const state = this.#state;
    if (localMs >= foldEnd || localMs < state.latest - DISORDER_MS_MAX) state.isSecond = true;
    state.latest = Math.max(state.latest, localMs);
    return state.isSecond;
  }

  /** The change nearest to a local time. Without one, both offsets are equal. */
  #changeNear(localMs: number): OffsetChange {
    const day = Math.floor(localMs / DAY_MS);
    if (day === this.#day) return this.#change;
    this.#day = day;
    // Offsets are less than a day, so the change in UTC is between these.
    const [from, to] = [(day - 1) * DAY_MS, (day + 2) * DAY_MS];
    const [change] = this.#zone.changesIn(from, to);
    const offset = change === undefined ? this.#zone.offsetAt(from) : 0;
    this.#change = change ?? { at: to, before: offset, after: offset };
    return this.#change;
  }
}
