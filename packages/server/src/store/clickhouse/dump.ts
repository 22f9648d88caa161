/** What a project consists of, for another store to take in; and what another store has of a source, taken in. */
import { CATEGORIES, EVENT_COUNT_MAX, type Event } from '../../event.ts';
import { linkOfRecord, linkRecord, type RememberedBatch, type Source } from '../store.ts';
import { parse } from './append.ts';
import { COUNTED, NO_ATTACK, REQUEST, TIME } from './cells.ts';
import {
  type BatchValue,
  batchKey,
  type LinksValue,
  linksKey,
  partsOf,
  sourceHostKey,
  sourceKey,
} from './keys.ts';
import type { Ledger, Page } from './ledger.ts';
import type { Server } from './server.ts';

/** An hour at a time, as it stood when the page was read. */
export async function* dumpEvents(
  server: Server,
  { version, head }: Page,
  project: string,
): AsyncGenerator<{ id: string; events: Event[] }> {
  const values = { project, version, open: head.open.map(({ attempt }) => attempt), from: head.horizon };
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
         AND minute >= {first:UInt32} AND minute < {behind:UInt32} AND ${TIME} >= {from:UInt64}
       GROUP BY host, time, sort ORDER BY host, time, sort`,
      { ...values, first: Number(hour) * 60, behind: (Number(hour) + 1) * 60 },
    );
    yield { id: `hour ${hour}`, events: rows.flatMap(eventsOf) };
  }
}

function eventsOf(row: { host: string; time: string; sort: number; n: string }): Event[] {
  const event = {
    time: Number(row.time),
    hostId: row.host === '' ? null : row.host,
    request: row.sort >= REQUEST,
    attack: CATEGORIES[row.sort & NO_ATTACK] ?? null,
  };
  const events: Event[] = [];
  for (let left = Number(row.n); left > 0; left -= EVENT_COUNT_MAX) {
    events.push({ ...event, count: Math.min(left, EVENT_COUNT_MAX) });
  }
  return events;
}

export async function* dumpBatches(
  ledger: Ledger,
  project: string,
  source: string,
): AsyncGenerator<RememberedBatch[]> {
  for await (const batches of ledger.scanParts(batchKey(project, source, ''))) {
    const known = batches.map(({ key, value }) => ({
      id: partsOf(key)[2] ?? '',
      ...(JSON.parse(value) as BatchValue),
    }));
    const linksOf = (after: string) => linksKey(project, source, after);
    const page = await ledger.read(
      known.flatMap(({ after }) => (after === undefined ? [] : [linksOf(after)])),
    );
    yield known.map(({ id, day, after }) => {
      const siblings = after === undefined ? [] : (parse<LinksValue>(page.get(linksOf(after))) ?? []);
      const found = siblings.find((link) => link.id === id);
      if (after === undefined || found === undefined) return { id, day };
      return { id, day, link: { after, ...linkOfRecord(found) } };
    });
  }
}

export async function putSource(
  ledger: Ledger,
  project: string,
  { hosts, ...source }: Source,
  batches: readonly RememberedBatch[],
): Promise<void> {
  const followed = new Set(batches.flatMap(({ link }) => (link ? [link.after] : [])));
  const keys = [...followed].map((after) => linksKey(project, source.name, after));
  await ledger.change(keys, (page) => {
    const writes = new Map([[sourceKey(project, source.name), JSON.stringify(source)]]);
    for (const host of hosts) writes.set(sourceHostKey(project, source.name, host), '1');
    for (const { id, day, link } of batches) {
      const value: BatchValue = link ? { day, after: link.after } : { day };
      writes.set(batchKey(project, source.name, id), JSON.stringify(value));
      if (link) {
        const { after } = link;
        const key = linksKey(project, source.name, after);
        const others = (parse<LinksValue>(writes.get(key) ?? page.get(key)) ?? []).filter(
          (one) => one.id !== id,
        );
        writes.set(key, JSON.stringify([...others, { id, ...linkRecord(link) }]));
      }
    }
    return { result: undefined, writes };
  });
}
