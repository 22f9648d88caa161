/** Events to what they add to each record, at every level, for their host and for their project. */
import { categoryNumber, EVENT_COUNT_MAX, type Event } from '../../event.ts';
import { type Additions, cellCode, seriesOf } from './cells.ts';
import { COUNTERS, EXACT, type Level } from './levels.ts';

/** Series numbers are on disk: requests, then the categories in the order of CATEGORIES, append only. */
export const REQUESTS = 0;
export const FIRST_CATEGORY = 1;

/** Record keys are one number here: a chunk at a level, of a scope (a host, or a project as a whole). */
export const SCOPES_MAX = 2 ** 24;

/** `EVENT_COUNT_MAX` is below it, so that cell and count of one event fit into one exactly sortable number. */
const COUNT_BASE = 2 ** 20;

export interface RecordAdditions extends Additions {
  level: number;
  chunk: number;
  scope: number;
}

export class Tally {
  /** By minute and scope: numbers of the form `cellCode * COUNT_BASE + count`, as they came. */
  readonly #minutes = new Map<number, number[]>();

  /** Adds an event so many times. */
  add(event: Event, times: number, project: number, host: number | null): void {
    if (!(event.count >= 1 && event.count <= EVENT_COUNT_MAX)) throw new Error(`a count of ${event.count}`);
    const minute = Math.floor(event.time / EXACT.cellsPerChunk);
    const cell = event.time - minute * EXACT.cellsPerChunk;
    if (event.request) this.#addCell(minute, project, host, cellCode(REQUESTS, cell), event.count, times);
    if (event.attack !== null) {
      const series = FIRST_CATEGORY + (categoryNumber(event.attack) ?? 0);
      this.#addCell(minute, project, host, cellCode(series, cell), event.count, times);
    }
  }

  #addCell(
    minute: number,
    project: number,
    host: number | null,
    code: number,
    count: number,
    times: number,
  ): void {
    const ofProject = this.#list(minute * SCOPES_MAX + project);
    const ofHost = host === null ? null : this.#list(minute * SCOPES_MAX + host);
    const atOnce = Math.floor(EVENT_COUNT_MAX / count);
    for (let left = times; left > 0; left -= atOnce) {
      const packed = code * COUNT_BASE + count * Math.min(left, atOnce);
      ofProject.push(packed);
      ofHost?.push(packed);
    }
  }

  #list(key: number): number[] {
    let list = this.#minutes.get(key);
    if (list === undefined) {
      list = [];
      this.#minutes.set(key, list);
    }
    return list;
  }

  /** In key order within each level, which is the order in which the B-tree likes them best. */
  *records(): Generator<RecordAdditions> {
    const counters = COUNTERS.map((level) => ({ level, records: new Map<number, Map<number, number>>() }));
    for (const key of [...this.#minutes.keys()].sort((a, b) => a - b)) {
      const minute = Math.floor(key / SCOPES_MAX);
      const scope = key % SCOPES_MAX;
      const exact = sumCells(this.#minutes.get(key) ?? []);
      const totals = seriesTotals(exact);
      for (const { level, records } of counters) addToCounters(level, records, minute, scope, totals);
      yield { level: EXACT.id, chunk: minute, scope, ...exact };
    }
    for (const { level, records } of counters) {
      for (const key of [...records.keys()].sort((a, b) => a - b)) {
        const cells = [...(records.get(key) ?? [])].sort(([a], [b]) => a - b);
        yield {
          level: level.id,
          chunk: Math.floor(key / SCOPES_MAX),
          scope: key % SCOPES_MAX,
          codes: cells.map(([code]) => code),
          counts: cells.map(([, count]) => count),
        };
      }
    }
  }
}

/** Equal cells become one. A typed array sorts numbers as numbers, and several times faster than an array. */
function sumCells(packed: number[]): Additions {
  const sorted = Float64Array.from(packed).sort();
  const codes: number[] = [];
  const counts: number[] = [];
  for (const value of sorted) {
    const code = Math.floor(value / COUNT_BASE);
    const count = value - code * COUNT_BASE;
    if (codes.length > 0 && codes[codes.length - 1] === code) {
      counts[counts.length - 1] = (counts[counts.length - 1] ?? 0) + count;
    } else {
      codes.push(code);
      counts.push(count);
    }
  }
  return { codes, counts };
}

/** How much each series grew in the minute: pairs of series and count. */
function seriesTotals({ codes, counts }: Additions): [number, number][] {
  const totals: [number, number][] = [];
  for (let i = 0; i < codes.length; ) {
    const series = seriesOf(codes[i] ?? 0);
    let total = 0;
    for (; i < codes.length && seriesOf(codes[i] ?? 0) === series; i++) total += counts[i] ?? 0;
    totals.push([series, total]);
  }
  return totals;
}

function addToCounters(
  level: Level,
  records: Map<number, Map<number, number>>,
  minute: number,
  scope: number,
  totals: readonly [number, number][],
): void {
  const cell = Math.floor((minute * EXACT.cellsPerChunk) / level.cellMs);
  const chunk = Math.floor(cell / level.cellsPerChunk);
  const key = chunk * SCOPES_MAX + scope;
  const cells = records.get(key) ?? new Map<number, number>();
  records.set(key, cells);
  for (const [series, total] of totals) {
    const code = cellCode(series, cell - chunk * level.cellsPerChunk);
    cells.set(code, (cells.get(code) ?? 0) + total);
  }
}
