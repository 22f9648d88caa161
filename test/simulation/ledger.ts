/** What was written, and what must become of it: the oracle of the simulation. */
import { CATEGORIES, type Category } from '../../packages/server/src/event.ts';
import type { Retention } from '../../packages/server/src/store/store.ts';
import type { Random } from '../random.ts';

export interface Line {
  number: number;
  source: string;
  /** Different for every line, so that a count of this millisecond is a count of this line. */
  time: number;
  host: string;
  attack: Category | null;
  /** `either`: it depends on when it is read, for example while a clock is wrong. */
  expected: 'counted' | 'dropped' | 'either';
  /** Files that have it, and clients that still send it. */
  copies: number;
  /** When it was written, and to which file of its log, counted from 0. */
  writtenAt: number;
  file: number;
  isCounted: boolean;
  /** Counted by `follow`. */
  isFollowed: boolean;
}

export const HOSTS = ['a.example', 'b.example', 'c.example'];

export class Ledger {
  readonly #random: Random;
  readonly #now: () => number;
  readonly #byTime = new Map<number, Line>();
  /** Lines whose outcome has not been checked yet. */
  readonly open = new Set<Line>();
  written = 0;

  constructor(random: Random, now: () => number) {
    this.#random = random;
    this.#now = now;
  }

  /** A new line. `time` is changed by milliseconds if another line has it. */
  write(source: string, time: number, expected: Line['expected'], padding = 0): { line: Line; text: string } {
    const number = ++this.written;
    let unique = Math.floor(time);
    while (this.#byTime.has(unique)) unique++;
    const host = this.#random.pick(HOSTS);
    const attack = this.#random.chance(0.3) ? this.#random.pick(CATEGORIES) : null;
    const line: Line = {
      number,
      source,
      time: unique,
      host,
      attack,
      expected,
      copies: 0,
      writtenAt: this.#now(),
      file: 0,
      isCounted: false,
      isFollowed: false,
    };
    this.#byTime.set(unique, line);
    this.open.add(line);
    const fields = { line: number, time: unique, host, ...(attack && { attack }), pad: 'x'.repeat(padding) };
    return { line, text: expected === 'dropped' ? `malformed line ${number}` : JSON.stringify(fields) };
  }

  noteFollowed(events: readonly { time: number }[]): void {
    for (const { time } of events) {
      const line = this.find(time);
      if (line) line.isFollowed = true;
    }
  }

  find(time: number): Line | undefined {
    return this.#byTime.get(time);
  }

  /** All lines since the horizon. Forgets those before `freedBefore`: the others are counted again if the horizon moves back. */
  since({ horizon, freedBefore }: Pick<Retention, 'horizon' | 'freedBefore'>): Line[] {
    for (const [time, line] of this.#byTime)
      if (time < freedBefore && !this.open.has(line)) this.#byTime.delete(time);
    return [...this.#byTime.values()].filter((line) => line.time >= horizon);
  }
}
