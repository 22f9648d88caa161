/** Time zones of logs whose times name none: an offset, or an IANA name whose clock is changed twice a year. */
import { type ClockState, fixedZone, type LocalZone } from './log-time.ts';

/** Throws an Error whose message says what the value must be. */
export function parseZone(text: string): LocalZone {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(text);
  if (match !== null) {
    const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
    if (minutes >= -12 * 60 && minutes <= 14 * 60) return fixedZone(minutes);
  } else if (isName(text)) return ianaZone(text);
  throw new Error(
    'must be an offset like +08:00, from -12:00 to +14:00, or an IANA time zone name like Europe/Berlin',
  );
}

export function ianaZone(name: string): LocalZone {
  return new IanaZone(new Changes(name), null);
}

function isName(text: string): boolean {
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
/** Lines that come later than this after an ambiguous hour has ended no longer belong to it. */
const LATE_MS_MAX = 3_600_000;

class IanaZone implements LocalZone {
  readonly #changes: Changes;
  #state: ClockState | null;

  constructor(changes: Changes, state: ClockState | null) {
    this.#changes = changes;
    this.#state = state;
  }

  startLog(state: ClockState | null): LocalZone {
    return new IanaZone(this.#changes, state === null ? null : { ...state });
  }

  state(): ClockState | null {
    return this.#state;
  }

  toUtc(localMs: number): number {
    const { at, before, after } = this.#changes.near(localMs);
    if (localMs < at + Math.min(before, after)) return localMs - before;
    // In a gap, which no clock shows, the time is the one of the clock before the change.
    if (after >= before) return localMs - (localMs < at + after ? before : after);
    return localMs - (this.#isSecondPass(at, localMs, at + before) ? after : before);
  }

  /** The clock was set back at `at`, so that it showed the times up to `foldEnd` twice. */
  #isSecondPass(at: number, localMs: number, foldEnd: number): boolean {
    if (localMs >= foldEnd + LATE_MS_MAX) {
      this.#state = null;
      return true;
    }
    if (this.#state?.changeAt !== at) this.#state = { changeAt: at, latest: localMs, isSecond: false };
    const state = this.#state;
    if (localMs >= foldEnd || localMs < state.latest - DISORDER_MS_MAX) state.isSecond = true;
    state.latest = Math.max(state.latest, localMs);
    return state.isSecond;
  }
}

/** The change of the clock that is nearest to a local time; without one, both offsets are the same. */
interface Change {
  /** In UTC. */
  at: number;
  /** Milliseconds east of UTC. */
  before: number;
  after: number;
}

const DAY_MS = 86_400_000;
/** Some years of days. A log of made-up dates costs time and no memory. */
const DAYS_MAX = 2_000;

/** Looks up offsets day by day, because the formatter takes microseconds and a line should not. */
class Changes {
  readonly #format: Intl.DateTimeFormat;
  readonly #days = new Map<number, Change>();
  #day = Number.NaN;
  #change: Change = { at: 0, before: 0, after: 0 };

  constructor(name: string) {
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone: name, timeZoneName: 'longOffset' });
  }

  near(localMs: number): Change {
    const day = Math.floor(localMs / DAY_MS);
    if (day !== this.#day) {
      this.#day = day;
      this.#change = this.#days.get(day) ?? this.#find(day);
    }
    return this.#change;
  }

  #find(day: number): Change {
    // Offsets are less than a day, so the moment in UTC is between these.
    let from = (day - 1) * DAY_MS;
    let to = (day + 2) * DAY_MS;
    const [before, after] = [this.#offsetAt(from), this.#offsetAt(to)];
    while (before !== after && to - from > 1_000) {
      const middle = Math.floor((from + to) / 2_000) * 1_000;
      if (this.#offsetAt(middle) === before) from = middle;
      else to = middle;
    }
    const change = { at: to, before, after };
    if (this.#days.size >= DAYS_MAX) this.#days.clear();
    this.#days.set(day, change);
    return change;
  }

  /** From `7/1/2026, GMT+02:00`; plain `GMT` is UTC. */
  #offsetAt(time: number): number {
    const match = /([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(this.#format.format(time));
    if (match === null) return 0;
    const seconds = Number(match[2]) * 3_600 + Number(match[3]) * 60 + Number(match[4] ?? 0);
    return (match[1] === '-' ? -1_000 : 1_000) * seconds;
  }
}
