/** Export of events to another store. */
import type { Event } from '../../event.ts';
import { eventsOfCells } from '../cells.ts';
import type { Database } from '../postgres/database.ts';
import type { Snapshot } from './attempts.ts';
import { CELLS, type Counter, counted, TIME } from './count.ts';
import { bucketOf, LEVELS, MINUTE_MS, NO_HOST } from './schema.ts';
import type { Server } from './server.ts';

/** Hours with more are divided into minutes. */
const COUNTS_PER_PART = 100_000;

/** One part per hour or minute. Each is read with its own snapshot, so that a large dump can take its time. */
export async function* dumpEvents(
  database: Database,
  counter: Counter,
  project: string,
): AsyncGenerator<{ id: string; events: Event[] }> {
  const rows = await database.run<{ number: number; id: string }>(
    'SELECT number, id FROM hosts WHERE project = $1',
    [project],
  );
  const hosts = new Map(rows.map(({ number, id }) => [number, id]));
  const hours = await counter.read({ project }, readHours);
  for (const { hour, n } of hours ?? []) {
    const first = Number(hour) * 60;
    const step = Number(n) > COUNTS_PER_PART ? 1 : 60;
    for (let minute = first; minute < first + 60; minute += step) {
      const events = await counter.read({ project }, (server, snapshot) =>
        readEvents(server, snapshot, hosts, minute, minute + step),
      );
      if (events !== null && events.length > 0) {
        yield { id: step === 1 ? `minute ${minute}` : `hour ${hour}`, events };
      }
    }
  }
}

function readHours(server: Server, snapshot: Snapshot) {
  const { where, values } = counted(snapshot);
  return server.select<{ hour: number; n: string }>(
    `SELECT intDiv(minute, 60) AS hour, sum(requests) + sum(attacks) AS n FROM cells
     WHERE ${where} AND level = ${LEVELS.hour} AND bucket = 0 AND host = ${NO_HOST} AND minute >= {first:UInt32}
     GROUP BY hour ORDER BY hour`,
    { ...values, first: Math.floor(snapshot.horizon / 60 / MINUTE_MS) * 60 },
  );
}

async function readEvents(
  server: Server,
  snapshot: Snapshot,
  hosts: ReadonlyMap<number, string>,
  first: number,
  end: number,
): Promise<Event[]> {
  const { where, values } = counted(snapshot);
  const rows = await server.select<{ host: number; minute: number; code: number; total: string }>(
    `SELECT host, minute, code, sum(n) AS total FROM ${CELLS}
     WHERE ${where} AND level = ${LEVELS.hostMinute}
       AND bucket = {bucket:UInt32} AND minute >= {first:UInt32} AND minute < {end:UInt32}
       AND ${TIME} >= {horizon:UInt64}
     GROUP BY host, minute, code ORDER BY host, minute, code`,
    { ...values, first, end, horizon: snapshot.horizon, bucket: bucketOf(LEVELS.hostMinute, first) },
  );
  const events: Event[] = [];
  let cells = new Map<number, number>();
  for (const [i, { host, minute, code, total }] of rows.entries()) {
    cells.set(code, Number(total));
    const next = rows[i + 1];
    if (next?.host === host && next.minute === minute) continue;
    events.push(...eventsOfCells(minute * MINUTE_MS, cells, hosts.get(host) ?? null));
    cells = new Map();
  }
  return events;
}
