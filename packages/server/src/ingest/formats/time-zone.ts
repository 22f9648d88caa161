/** Time zones for logs whose times name none: a fixed offset, or an IANA name with daylight saving time. */
import { BoundedCache } from '../../cache.ts';

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
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(text);
  if (match !== null) {
    const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
    if (minutes >= -12 * 60 && minutes <= 14 * 60) return fixedZone(minutes);
  } else if (isZoneName(text)) return ianaZone(text);
  throw new Error(
    'must be an offset like +08:00, from -12:00 to +14:00, or an IANA time zone name like Europe/Berlin',
  );
}

export function fixedZone(offsetMinutes: number): LocalZone {
  const minutes = Math.abs(offsetMinutes);
  const digits = (number: number) => String(number).padStart(2, '0');
  return {
    name: `${offsetMinutes < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60))}:${digits(minutes % 60)}`,
    toUtc: (localMs) => localMs - offsetMinutes * 60_000,
  };
}

export function ianaZone(name: string): LocalZone {
  return new IanaZone(name, new OffsetChanges(name), null);
}

function isZoneName(text: string): boolean {
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(text)) return false;
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: text });
    return true;
  } catch {
    return false;
  }
}

/** Lines of one log are out of order by less than this: workers write at nearly the same time. */
const DISORDER_MS_MAX = 10_000;
/** Lines later than this after an ambiguous hour no longer belong to it. */
const LATE_MS_MAX = 3_600_000;

class IanaZone implements LocalZone {
  readonly name: string;
  readonly #changes: OffsetChanges;
  #state: ZoneState | null;

  constructor(name: string, changes: OffsetChanges, state: ZoneState | null) {
    this.name = name;
    this.#changes = changes;
    this.#state = state;
  }

  startLog(state: ZoneState | null): LocalZone {
    return new IanaZone(this.name, this.#changes, state === null ? null : { ...state });
  }

  state(): ZoneState | null {
    return this.#state;
  }

  toUtc(localMs: number): number {
    const { at, before, after } = this.#changes.near(localMs);
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
}

/** The offset change nearest to a local time. Without one, both offsets are equal. */
interface OffsetChange {
  /** The time of the change in UTC. */
  at: number;
  /** Milliseconds east of UTC. */
  before: number;
  after: number;
}

const DAY_MS = 86_400_000;

/** Looks up offsets once per day: the formatter takes microseconds, too long for every line. */
class OffsetChanges {
  readonly #format: Intl.DateTimeFormat;
  readonly #days = new BoundedCache<number, OffsetChange>({ name: null, entriesMax: 400 });

  constructor(name: string) {
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' });
  }

  near(localMs: number): OffsetChange {
    const day = Math.floor(localMs / DAY_MS);
    const known = this.#days.get(day);
    if (known !== undefined) return known;
    const change = this.#find(day);
    this.#days.set(day, change);
    return change;
  }

  #find(day: number): OffsetChange {
    // Offsets are less than a day, so the change in UTC is between these.
    let from = (day - 1) * DAY_MS;
    let to = (day + 2) * DAY_MS;
    const [before, after] = [this.#offsetAt(from), this.#offsetAt(to)];
    while (before !== after && to - from > 1_000) {
      const middle = Math.floor((from + to) / 2_000) * 1_000;
      if (this.#offsetAt(middle) === before) from = middle;
      else to = middle;
    }
    return { at: to, before, after };
  }

  /** Parses `7/1/2026, GMT+02:00`; plain `GMT` is UTC. */
  #offsetAt(time: number): number {
    const match = /([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(this.#format.format(time));
    if (match === null) return 0;
    const seconds = Number(match[2]) * 3_600 + Number(match[3]) * 60 + Number(match[4] ?? 0);
    return (match[1] === '-' ? -1_000 : 1_000) * seconds;
  }
}
