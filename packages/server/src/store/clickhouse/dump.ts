/** Export of events and batches to another store, and import of a source from one. */
import { CATEGORIES, type Event } from '../../event.ts';
import {
  type BatchRecord,
  fromLinkRecord,
  type Source,
  type StoredBatch,
  splitCount,
  toLinkRecord,
} from '../store.ts';
import { BLOCKED, COUNTED, NO_ATTACK, REQUEST, TIME } from './cells.ts';
import {
  batchKey,
  type Ledger,
  type LinksValue,
  linksKey,
  parse,
  partsOf,
  type Snapshot,
  sourceHostKey,
  sourceKey,
} from './ledger.ts';
import type { Server } from './server.ts';

/** One part per hour, as of the snapshot. */
export async function* dumpEvents(
  server: Server,
  { version, state }: Snapshot,
  project: string,
): AsyncGenerator<{ id: string; events: Event[] }> {
  const values = { project, version, open: state.open.map(({ attempt }) => attempt), from: state.horizon };
  const hours = await server.select<{ hour: number }>(
    `SELECT DISTINCT intDiv(minute, 60) AS hour FROM cells
     WHERE project = {project:String} AND ${COUNTED} AND minute >= intDiv({from:UInt64}, 60000) ORDER BY hour`,
    values,
  );
  for (const { hour } of hours) {
    const rows = await server.select<{ host: string; time: string; sort: number; n: string }>(
      `SELECT host, ${TIME} AS time, kind AS sort, sum(count) AS n
       FROM cells ARRAY JOIN at, kind, count
       WHERE project = {project:String} AND ${COUNTED}
         AND minute >= {first:UInt32} AND minute < {end:UInt32} AND ${TIME} >= {from:UInt64}
       GROUP BY host, time, sort ORDER BY host, time, sort`,
      { ...values, first: Number(hour) * 60, end: (Number(hour) + 1) * 60 },
    );
    yield { id: `hour ${hour}`, events: rows.flatMap(eventsOf) };
  }
}

function eventsOf(row: { host: string; time: string; sort: number; n: string }): Event[] {
  const event = {
    time: Number(row.time),
    hostId: row.host === '' ? null : row.host,
    request: (row.sort & REQUEST) !== 0,
    attack: CATEGORIES[row.sort & NO_ATTACK] ?? null,
    ...((row.sort & BLOCKED) !== 0 && { details: { blocked: true } }),
  };
  return [...splitCount(event, Number(row.n))];
}

export async function* dumpBatches(
  ledger: Ledger,
  project: string,
  source: string,
): AsyncGenerator<BatchRecord[]> {
  for await (const batches of ledger.scanParts(batchKey(project, source, ''))) {
    const known = batches.map(({ key, value }) => ({
      id: partsOf(key)[2] ?? '',
      ...(JSON.parse(value) as StoredBatch),
    }));
    const linksOf = (after: string) => linksKey(project, source, after);
    const snapshot = await ledger.read(
      known.flatMap(({ after }) => (after === undefined ? [] : [linksOf(after)])),
    );
    yield known.map(({ id, day, after }) => {
      const siblings = after === undefined ? [] : (parse<LinksValue>(snapshot.get(linksOf(after))) ?? []);
      const found = siblings.find((link) => link.id === id);
      if (after === undefined || found === undefined) return { id, day };
      return { id, day, link: { after, ...fromLinkRecord(found) } };
    });
  }
}

export async function putSource(
  ledger: Ledger,
  project: string,
  { hosts, ...source }: Source,
  batches: readonly BatchRecord[],
): Promise<void> {
  const predecessors = new Set(batches.flatMap(({ link }) => (link ? [link.after] : [])));
  const keys = [...predecessors].map((after) => linksKey(project, source.name, after));
  await ledger.change(keys, (snapshot) => {
    const writes = new Map([[sourceKey(project, source.name), JSON.stringify(source)]]);
    for (const host of hosts) writes.set(sourceHostKey(project, source.name, host), '1');
    for (const { id, day, link } of batches) {
      const value: StoredBatch = link ? { day, after: link.after } : { day };
      writes.set(batchKey(project, source.name, id), JSON.stringify(value));
      if (link) {
        const { after } = link;
        const key = linksKey(project, source.name, after);
        const others = (parse<LinksValue>(writes.get(key) ?? snapshot.get(key)) ?? []).filter(
          (one) => one.id !== id,
        );
        writes.set(key, JSON.stringify([...others, { id, ...toLinkRecord(link) }]));
      }
    }
    return { result: undefined, writes };
  });
}
