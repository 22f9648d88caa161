/** Export of events to another store. */
import type { Event } from '../../event.ts';
import type { Database } from '../../postgres/database.ts';
import { eventsOfCells, readCells } from '../cells.ts';
import { NOT_DELETED } from './hosts.ts';
import { EXACT, NO_HOST } from './schema.ts';
import { readSegment } from './segments.ts';

const MINUTE_MS = EXACT.cellsPerChunk;
/** Bounds the memory for a part to a few megabytes. */
const BYTES_PER_PART = 65_536;
const MINUTES_PER_PART = 1_000;

/** A part consists of whole minutes; its id is the first of them. */
export async function* dumpEvents(
  database: Database,
  project: string,
): AsyncGenerator<{ id: string; events: Event[] }> {
  const [state] = await database.run<{ horizon: number }>('SELECT horizon FROM retention');
  const horizon = state?.horizon ?? 0;
  const rows = await database.run<{ number: number; id: string }>(
    `SELECT number, id FROM hosts WHERE project = $1 AND ${NOT_DELETED}`,
    [project],
  );
  const hosts = new Map(rows.map(({ number, id }) => [number, id]));
  let next = Math.floor(horizon / MINUTE_MS);
  for (;;) {
    const minutes = await database.run<{ minute: number; bytes: number }>(
      `SELECT minute, sum(octet_length(cells))::bigint AS bytes FROM segments
       WHERE project = $1 AND minute >= $2 GROUP BY minute ORDER BY minute LIMIT ${MINUTES_PER_PART}`,
      [project, next],
    );
    if (minutes.length === 0) return;
    let bytes = 0;
    const cut = minutes.findIndex((one) => {
      bytes += one.bytes;
      return bytes > BYTES_PER_PART;
    });
    // A part has at least one minute.
    const part = cut === -1 ? minutes : minutes.slice(0, cut + 1);
    const [first, last] = [part[0]?.minute ?? 0, part.at(-1)?.minute ?? 0];
    const events = await readEvents(database, project, hosts, first, last);
    yield { id: `minute ${first}`, events: events.filter(({ time }) => time >= horizon) };
    next = last + 1;
  }
}

async function readEvents(
  database: Database,
  project: string,
  hosts: ReadonlyMap<number, string>,
  first: number,
  last: number,
): Promise<Event[]> {
  const segments = await database.run<{ minute: number; cells: Buffer }>(
    `SELECT minute, cells FROM segments WHERE project = $1 AND minute >= $2 AND minute <= $3
     ORDER BY minute, append`,
    [project, first, last],
  );
  const sums = new Map<string, { minute: number; host: number; cells: Map<number, number> }>();
  for (const { minute, cells } of segments) {
    for (const [host, record] of readSegment(cells)) {
      const sum = sums.get(`${minute} ${host}`) ?? { minute, host, cells: new Map<number, number>() };
      sums.set(`${minute} ${host}`, sum);
      for (const [code, count] of readCells(record)) sum.cells.set(code, (sum.cells.get(code) ?? 0) + count);
    }
  }
  const sorted = [...sums.values()].sort((a, b) => a.minute - b.minute || a.host - b.host);
  return sorted.flatMap(({ minute, host, cells }) => [
    ...eventsOfCells(minute * MINUTE_MS, cells, host === NO_HOST ? null : (hosts.get(host) ?? null)),
  ]);
}
