/** Sums events by minute, for stores that keep exact milliseconds per minute and counters of longer cells. */
import { EVENT_COUNT_MAX, type Event } from '../event.ts';
import { cellCode, FIRST_BLOCKED, FIRST_CATEGORY, FIRST_PEAK, packCell, REQUESTS } from './cells.ts';
import type { Level } from './plan.ts';
import { storedCategory } from './store.ts';

const MINUTE_MS = 60_000;

/** Events without a host, among hosts by ID. No ID is empty. */
export const WITHOUT_HOST = '';

/** Passes each exact cell of an event, packed. */
export function packEvent(event: Event, add: (minute: number, packed: number) => void): void {
  const { time, count } = event;
  if (!(count >= 1 && count <= EVENT_COUNT_MAX)) throw new Error(`an event has the count ${count}`);
  const minute = Math.floor(time / MINUTE_MS);
  const cell = time - minute * MINUTE_MS;
  if (event.request) add(minute, packCell(cellCode(REQUESTS, cell), count));
  if (event.attack === null) return;
  const category = storedCategory(event.attack);
  add(minute, packCell(cellCode(FIRST_CATEGORY + category, cell), count));
  if (event.details?.blocked === true) add(minute, packCell(cellCode(FIRST_BLOCKED + category, cell), count));
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
    const known = cells.get(code) ?? 0;
    cells.set(code, series >= FIRST_PEAK ? Math.max(known, total) : known + total);
  }
}
