/** Sums events by minute and host, for stores that keep exact milliseconds per minute. */
import { EVENT_COUNT_MAX, type Event } from '../event.ts';
import {
  type Additions,
  cellCode,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  packCell,
  REQUESTS,
  sumCells,
} from './cells.ts';
import { storedCategory } from './store.ts';

const MINUTE_MS = 60_000;

/** Events without a host, among hosts by ID. No ID is empty. */
export const WITHOUT_HOST = '';

/** The exact cells of each minute and host. */
export function countByMinute(events: readonly Event[]): Map<number, Map<string, Additions>> {
  const minutes = new Map<number, Map<string, Additions>>();
  const packed: PackedMinutes = new Map();
  packEvents(packed, events);
  for (const [minute, hosts] of packed) {
    minutes.set(minute, new Map(Array.from(hosts, ([host, cells]) => [host, sumCells(cells)])));
  }
  return minutes;
}

/** Packed cells by minute and host. */
export type PackedMinutes = Map<number, Map<string, number[]>>;

export function packEvents(minutes: PackedMinutes, events: readonly Event[]): void {
  for (const event of events) {
    const { time, hostId, count } = event;
    if (!(count >= 1 && count <= EVENT_COUNT_MAX)) throw new Error(`an event has the count ${count}`);
    const minute = Math.floor(time / MINUTE_MS);
    const cell = time - minute * MINUTE_MS;
    let hosts = minutes.get(minute);
    if (hosts === undefined) {
      hosts = new Map();
      minutes.set(minute, hosts);
    }
    const host = hostId ?? WITHOUT_HOST;
    let cells = hosts.get(host);
    if (cells === undefined) {
      cells = [];
      hosts.set(host, cells);
    }
    if (event.request) cells.push(packCell(cellCode(REQUESTS, cell), count));
    if (event.attack !== null) {
      const category = storedCategory(event.attack);
      cells.push(packCell(cellCode(FIRST_CATEGORY + category, cell), count));
      if (event.details?.blocked === true)
        cells.push(packCell(cellCode(FIRST_BLOCKED + category, cell), count));
    }
  }
}
