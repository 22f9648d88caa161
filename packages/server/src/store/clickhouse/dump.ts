/** Export of events to another store. */

import type { Event } from '../../event.ts';
import type { Database } from '../../postgres/database.ts';
import { eventsOfCells } from '../cells.ts';
import { NOT_DELETED } from '../postgres/hosts.ts';
import type { Snapshot } from './attempts.ts';
import { CELLS, type Counter, counted, TIME } from './count.ts';
import { bucketOf, LEVELS, MINUTE_MS } from './schema.ts';
import type { Server } from './server.ts';

/** Bounds the memory for a part to a few megabytes. */
const CELLS_PER_PART = 50_000;

/** A part consists of whole minutes. Each is read with its own snapshot, so that a large dump can take its time. */
export async function* dumpEvents(
  database: Database,
  counter: Counter,
  project: string,
): AsyncGenerator<{ id: string; events: Event[] }> {
  const rows = await database.run<{ number: number; id: string }>(
    `SELECT number, id FROM hosts WHERE project = $1 AND ${NOT_DELETED}`,
    [project],
  );
  const hosts = new Map(rows.map(({ number, id }) => [number, id]));
  const minutes = (await counter.read({ project }, readMinutes)) ?? [];
  for (const { first, end } of partsOf(minutes)) {
    const events = await counter.read({ project }, (server, snapshot) =>
      readEvents(server, snapshot, hosts, first, end),
    );
    if (events !== null && events.length > 0) yield { id: `minute ${first}`, events };
  }
}

function* partsOf(minutes: readonly MinuteRow[]): Generator<{ first: number; end: number }> {
  let cells = 0;
  let first: number | null = null;
  for (const [i, { minute, n }] of minutes.entries()) {
    first ??= minute;
    cells += Number(n);
    const next = minutes[i + 1];
    if (next !== undefined && cells + Number(next.n) <= CELLS_PER_PART) continue;
    yield { first, end: minute + 1 };
    first = null;
    cells = 0;
  }
}

interface MinuteRow {
  minute: number;
  /** At least the number of its cells. */
  n: string;
}

function readMinutes(server: Server, snapshot: Snapshot): Promise<MinuteRow[]> {
  const { where, values } = counted(snapshot);
  return server.select<MinuteRow>(
    `SELECT minute, sum(length(codes)) AS n FROM cells
     WHERE ${where} AND level = ${LEVELS.hostMinute} AND minute >= {first:UInt32} GROUP BY minute ORDER BY minute`,
    { ...values, first: Math.floor(snapshot.horizon / MINUTE_MS) },
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
       AND bucket >= {bucket:UInt32} AND bucket <= {lastBucket:UInt32} AND minute >= {first:UInt32} AND minute < {end:UInt32}
       AND ${TIME} >= {horizon:UInt64}
     GROUP BY host, minute, code ORDER BY host, minute, code`,
    {
      ...values,
      first,
      end,
      horizon: snapshot.horizon,
      bucket: bucketOf(LEVELS.hostMinute, first),
      lastBucket: bucketOf(LEVELS.hostMinute, end - 1),
    },
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
