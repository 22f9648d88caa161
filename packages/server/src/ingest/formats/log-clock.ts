import { parseCommonTime } from './log-time.ts';

/** `10/Dec/2025:09:25` is the same in many lines one after the other; so is the zone. */
const MINUTE_LENGTH = 17;
const ZONE_AT = 21;
const TIME_LENGTH = 26;

const ZERO = 0x30;
const COLON = 0x3a;
const SPACE = 0x20;

/** Reads the times of access logs, and remembers the last minute: that is most of what an access line costs. */
export class LogClock {
  /** Null until the first time is read. */
  #minute: string | null = null;
  #zone = '';
  #time = 0;

  /** The time that stands at this place, as in `10/Dec/2025:09:25:32 +0000`, or null. */
  read(line: string, at: number): number | null {
    const known =
      this.#minute !== null && line.startsWith(this.#minute, at) && line.startsWith(this.#zone, at + ZONE_AT);
    if (!known && !this.#learn(line, at)) return null;
    const tens = line.charCodeAt(at + 18) - ZERO;
    const ones = line.charCodeAt(at + 19) - ZERO;
    const isSecond =
      tens >= 0 &&
      tens <= 5 &&
      ones >= 0 &&
      ones <= 9 &&
      line.charCodeAt(at + MINUTE_LENGTH) === COLON &&
      line.charCodeAt(at + 20) === SPACE;
    return isSecond ? this.#time + (tens * 10 + ones) * 1_000 : null;
  }

  #learn(line: string, at: number): boolean {
    const minute = line.slice(at, at + MINUTE_LENGTH);
    const zone = line.slice(at + ZONE_AT, at + TIME_LENGTH);
    const time = parseCommonTime(`${minute}:00 ${zone}`);
    if (time === null) return false;
    this.#minute = minute;
    this.#zone = zone;
    this.#time = time;
    return true;
  }
}
