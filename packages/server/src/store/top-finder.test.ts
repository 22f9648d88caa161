import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { finish } from './slices.ts';
import { HOUR_MS, QueryTooLarge, type TopQuery } from './store.ts';
import { TopFinder, type TopSnapshot } from './top-finder.ts';
import { addToRecords, decodeRecord, selectSummaries, TopAdditions } from './top-records.ts';

const HOURS = 100;

/** A store of one source per hour, whose records change when `version` does. It counts how often hours are read. */
class Hours {
  version = 1;
  snapshots = 0;
  snapshotsMax = 0;
  readonly reads: number[] = [];
  /** The length of each record. */
  bytes = 1;
  /** Hours before this have no record. */
  firstHour = 0;

  readonly inSnapshot = async <T>(
    { list, hosts, from, to }: TopQuery,
    action: (snapshot: TopSnapshot<number>) => Promise<T>,
  ): Promise<T> => {
    this.snapshotsMax = Math.max(this.snapshotsMax, ++this.snapshots);
    const { version, reads } = this;
    const additions = new TopAdditions();
    additions.add({ time: 0, attack: 'xss', details: { source: '10.0.0.1' } }, version, null);
    const hour = additions.hours.get(0) ?? new Map();
    const merge = { additions: hour, read: () => undefined, project: 'p', keysMax: 9 };
    const [changed] = finish(addToRecords(merge));
    const summaries = selectSummaries(decodeRecord(changed?.record ?? Buffer.alloc(1)), list, hosts) ?? [];
    const recordOf = (hour: number) =>
      hour < this.firstHour ? { hour, bytes: 0, summaries: [] } : { hour, bytes: this.bytes, summaries };
    const snapshot: TopSnapshot<number> = {
      covered: { from, to },
      first: from / HOUR_MS,
      end: to / HOUR_MS,
      state: () => version,
      async *records(first, end) {
        for (let hour = end - 1; hour >= first; hour--) {
          reads.push(hour);
          await setImmediate();
          yield recordOf(hour);
        }
      },
    };
    try {
      return await action(snapshot);
    } finally {
      this.snapshots--;
    }
  };
}

const QUERY: TopQuery = { project: 'p', list: 'sources', from: 0, to: HOURS * HOUR_MS, limit: 5 };

describe('a query of top lists', () => {
  test('merges a base once, however many ask for it at the same time, and again when it has changed', async () => {
    const hours = new Hours();
    const finder = new TopFinder(hours.inSnapshot);
    const limits = Array.from({ length: 12 }, (_, i) => i + 1);
    const lists = await Promise.all(limits.map((limit) => finder.find({ ...QUERY, limit })));
    for (const { attacks } of lists) expect(attacks).toBe(HOURS);
    expect(hours.reads.filter((hour) => hour < HOURS - 2)).toHaveLength(HOURS - 2);
    hours.version = 2;
    expect(await finder.find(QUERY)).toMatchObject({ attacks: 2 * HOURS, distinct: 1, error: 0 });
    expect(hours.reads.filter((hour) => hour < HOURS - 2)).toHaveLength(2 * (HOURS - 2));
  });

  test('merges two bases at a time, so that most connections stay free', async () => {
    const hours = new Hours();
    const finder = new TopFinder(hours.inSnapshot);
    const queries = Array.from({ length: 10 }, (_, i) => finder.find({ ...QUERY, project: `p${i}` }));
    // The first look at each base is short.
    for (let turn = 0; turn < 5; turn++) await setImmediate();
    hours.snapshotsMax = 0;
    for (const { attacks } of await Promise.all(queries)) expect(attacks).toBe(HOURS);
    expect(hours.snapshotsMax).toBe(2);
  });

  test('covers fewer hours if there are too many bytes, and none of an hour with too many', async () => {
    const hours = new Hours();
    hours.bytes = 1_000;
    const list = await new TopFinder(hours.inSnapshot, 10_000).find(QUERY);
    // A record costs half of its bytes: 20 hours besides the last two.
    expect(list).toMatchObject({ attacks: 22, from: (HOURS - 22) * HOUR_MS, to: QUERY.to, shortened: true });
    const short = { ...QUERY, from: (HOURS - 22) * HOUR_MS };
    expect(await new TopFinder(hours.inSnapshot, 10_000).find(short)).not.toHaveProperty('shortened');
    hours.firstHour = HOURS - 22;
    expect(await new TopFinder(hours.inSnapshot, 10_000).find(QUERY)).not.toHaveProperty('shortened');
    hours.bytes = 30_000;
    await expect(new TopFinder(hours.inSnapshot, 10_000).find(QUERY)).rejects.toThrow(QueryTooLarge);
  });

  test('that fails is retried by the next one', async () => {
    const hours = new Hours();
    let isDown = true;
    const finder = new TopFinder<number>((query, action) => {
      if (isDown) throw new Error('down');
      return hours.inSnapshot(query, action);
    });
    await expect(Promise.all([finder.find(QUERY), finder.find(QUERY)])).rejects.toThrow('down');
    isDown = false;
    expect(await finder.find(QUERY)).toMatchObject({ attacks: HOURS });
  });
});
