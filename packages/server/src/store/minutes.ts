/** Sums events by minute, for stores that keep exact milliseconds per minute and counters of longer cells. */
import { EVENT_COUNT_MAX, type Event } from '../event.ts';
import {
  type Additions,
  addCount,
  BYTES_IN,
  BYTES_OUT,
  cellCode,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  FIRST_CODE,
  FIRST_UPSTREAM_CODE,
  FIRST_WAF_CODE,
  NO_CODE,
  OK,
  packCell,
  REQUESTS,
  REQUESTS_WITHOUT_CODE,
  sumCells,
} from './cells.ts';
import type { Level } from './plan.ts';
import { storedCategory } from './store.ts';

const MINUTE_MS = 60_000;
const NO_CODES: readonly number[] = [];

/** Events without a host, among hosts by ID. No ID is empty. */
export const WITHOUT_HOST = '';

export function minuteOf({ time }: Event): number {
  return Math.floor(time / MINUTE_MS);
}

/** The events of one minute, of a project or a host. */
export class MinuteCells {
  /** In order of arrival. */
  readonly #packed: number[] = [];
  #bytesIn = 0;
  #bytesOut = 0;

  add(event: Event): void {
    const { time, count } = event;
    if (!(count >= 1 && count <= EVENT_COUNT_MAX)) throw new Error(`an event has the count ${count}`);
    const cell = time - minuteOf(event) * MINUTE_MS;
    if (event.request) {
      this.#addResponses(event, cell);
      this.#bytesIn += event.bytesIn ?? 0;
      this.#bytesOut += event.bytesOut ?? 0;
    }
    if (event.attack === null) return;
    const category = storedCategory(event.attack);
    this.#packed.push(packCell(cellCode(FIRST_CATEGORY + category, cell), count));
    if (event.details?.blocked === true)
      this.#packed.push(packCell(cellCode(FIRST_BLOCKED + category, cell), count));
  }

  #addResponses(
    { count, status, upstreamStatus = status, otherCodes = NO_CODES }: Event,
    cell: number,
  ): void {
    let rest = count;
    for (let i = 0; i < otherCodes.length; i += 2) {
      const others = otherCodes[i + 1] ?? 0;
      rest -= others;
      this.#addResponse(otherCodes[i], otherCodes[i], cell, others);
    }
    if (rest > 0) this.#addResponse(status, upstreamStatus, cell, rest);
  }

  #addResponse(
    status: number | undefined,
    upstreamStatus: number | undefined,
    cell: number,
    count: number,
  ): void {
    const waf = codeNumber(status);
    const upstream = codeNumber(upstreamStatus);
    const isSame = waf === upstream;
    const requests = isSame && waf === NO_CODE ? REQUESTS_WITHOUT_CODE : REQUESTS;
    this.#packed.push(packCell(cellCode(requests, cell), count));
    if (requests === REQUESTS_WITHOUT_CODE) return;
    if (waf !== OK)
      this.#packed.push(packCell(cellCode((isSame ? FIRST_CODE : FIRST_WAF_CODE) + waf, cell), count));
    if (!isSame && upstream !== OK)
      this.#packed.push(packCell(cellCode(FIRST_UPSTREAM_CODE + upstream, cell), count));
  }

  sum(): Additions {
    const sums = sumCells(this.#packed);
    // The last series, so the codes stay in order.
    for (const [series, bytes] of [
      [BYTES_IN, this.#bytesIn],
      [BYTES_OUT, this.#bytesOut],
    ] as const) {
      if (bytes === 0) continue;
      sums.codes.push(cellCode(series, 0));
      sums.counts.push(addCount(series, 0, bytes));
    }
    return sums;
  }
}

/** The position in RESPONSE_CODES. */
function codeNumber(status: number | undefined): number {
  return status !== undefined && status >= 100 && status <= 599 ? status - 100 : NO_CODE;
}

/** Adds the totals of a minute to a level, and raises its peaks. `cellsOf` returns the counts of a chunk by cellCode. */
export function addToLevel(
  { cellMs, cellsPerChunk }: Level,
  minute: number,
  totals: readonly [series: number, total: number][],
  cellsOf: (chunk: number) => Map<number, number>,
): void {
  const cell = Math.floor((minute * MINUTE_MS) / cellMs);
  const chunk = Math.floor(cell / cellsPerChunk);
  const cells = cellsOf(chunk);
  for (const [series, total] of totals) {
    const code = cellCode(series, cell - chunk * cellsPerChunk);
    cells.set(code, addCount(series, cells.get(code) ?? 0, total));
  }
}
