import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import type { Event } from '../../event.ts';
import { finish } from '../slices.ts';
import type { Batch } from '../store.ts';
import { appendGroup, deleteBatch, prepareGroup } from './append.ts';
import { addHosts, deleteHost } from './hosts.ts';
import { CHANGES, openSchema, type Schema } from './schema.ts';
import { deleteTopListsSteps } from './top-lists.ts';

const NOW = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
const TOP_KEYS = 4;
const LIMITS = { topKeys: TOP_KEYS, requestsMax: 1_000, eventsMax: 1_000 };

describe('a group that is prepared before its transaction', () => {
  let directory: string;
  const schemas: Schema[] = [];
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'wafstat-prepare-'));
  });
  afterEach(async () => {
    for (const { root } of schemas.splice(0)) await root.close();
    rmSync(directory, { recursive: true });
  });

  function openWith(hosts: number): { schema: Schema; ids: string[] } {
    const schema = openSchema(join(directory, `${schemas.length}.mdb`));
    schemas.push(schema);
    const hostnames = Array.from({ length: hosts }, (_, i) => `host-${i}`);
    const names = { project: 'p', hostnames, limit: hosts };
    schema.root.transactionSync(() => addHosts(schema, names, new Set(hostnames), NOW));
    return { schema, ids: [...schema.hosts.getRange()].map(({ value }) => value.id).sort() };
  }

  const batchOf = (id: string, events: readonly Event[]): Batch => ({
    project: 'p',
    source: { name: 'test', format: 'events' },
    id,
    events,
    dropped: {},
  });

  const append = (
    schema: Schema,
    batches: readonly Batch[],
    prepared?: Parameters<typeof appendGroup>[4],
    limits = LIMITS,
  ) => schema.root.transactionSync(() => appendGroup(schema, batches, NOW, limits, prepared));

  const attackOf = (hostId: string | null, time: number, value: number): Event => ({
    time,
    hostId,
    request: true,
    attack: 'xss',
    count: 1,
    details: { source: `10.0.0.${value}`, url: `/${value}/${'x'.repeat(500)}`, rule: '1' },
  });

  /** All records but change counters, which grow by random numbers. */
  const contentOf = (schema: Schema) => [
    ...[...schema.cells.getRange()].filter(({ key }) => key.readUInt32BE(5) !== CHANGES),
    ...schema.topLists.getRange(),
    ...schema.attacks.getRange(),
    ...schema.requests.getRange(),
    ...schema.projects.getRange(),
    ...schema.sources.getRange(),
    ...schema.sourceHosts.getRange(),
    ...schema.batches.getRange(),
  ];

  test('takes a step for each record, and reads nothing again', () => {
    const { schema, ids } = openWith(40);
    const attacks = (first: number) =>
      ids.flatMap((id, host) => [0, 1, 2, 3].map((i) => attackOf(id, NOW + host, first + i)));
    append(schema, [batchOf('a', attacks(0))]);
    const group = [batchOf('b', attacks(2))];
    const steps = prepareGroup(schema, group, NOW, LIMITS);
    let taken = 0;
    let next = steps.next();
    for (; !next.done; next = steps.next()) taken++;
    const { writes = [] } = next.value ?? {};
    // Exact counts and three levels of counters, and top lists, of each host and the project. A block of attacks has five
    // records: one with the sums of equal attacks replaces another, and one has the new attacks.
    expect(writes).toHaveLength(5 * 41 + 3 * 5);
    expect(taken).toBeGreaterThanOrEqual(5 * 40);
    // Reading a damaged record would fail.
    schema.root.transactionSync(() => {
      for (const [table, key] of writes) schema[table].putSync(key, Buffer.from('damaged'));
    });
    append(schema, group, next.value);
    for (const [table, key, value] of writes) expect(schema[table].getBinary(key) ?? null).toEqual(value);
  });

  test('is a conflict if the chunk before it is deleted in the meantime', () => {
    const { schema } = openWith(1);
    const link = { after: '', bytes: 1, firstLineHash: '', readerState: '', siblings: [] };
    append(schema, [{ ...batchOf('one', []), link }]);
    const group = [{ ...batchOf('two', [attackOf(null, NOW, 1)]), link: { ...link, after: 'one' } }];
    const prepared = finish(prepareGroup(schema, group, NOW, LIMITS));
    expect(prepared?.decision.results).toMatchObject([{ kind: 'appended' }]);
    schema.root.transactionSync(() => deleteBatch(schema, 1, 'one'));
    expect(append(schema, group, prepared)).toEqual([{ kind: 'conflict' }]);
    expect([...schema.cells.getKeys()]).toEqual([]);
  });

  test('has the same result as one that is not, whatever changes in the meantime', () => {
    const event = (ids: readonly string[]) =>
      fc
        .record({
          host: fc.option(fc.nat(ids.length - 1), { nil: null }),
          time: fc.nat(100).map((n) => NOW + n * 60_000),
          value: fc.nat(9),
          flagged: fc.option(
            fc
              .record({
                kind: fc.constantFrom('record', 'lines', 'forged'),
                ids: fc.uniqueArray(fc.nat(20).map(String), { minLength: 1, maxLength: 3 }),
                log: fc.constantFrom('audit', 'other'),
                unnamed: fc.option(fc.constantFrom('u', 'v'), { nil: undefined }),
              })
              .map(({ ids, ...rest }) => ({ ...rest, ids: rest.kind === 'forged' ? ids : ids.slice(0, 1) })),
            { nil: undefined },
          ),
        })
        .map(({ host, time, value, flagged }) => ({
          ...attackOf(host === null ? null : (ids[host] ?? null), time, value),
          flagged,
        }));
    const changes = fc.constantFrom(
      'nothing',
      'append',
      'same batch',
      'deleted host',
      'deleted lists',
      'horizon',
    );
    fc.assert(
      fc.property(changes, fc.gen(), (change, generate) => {
        const results = [true, false].map(() => openWith(3));
        const ids = results[0]?.ids ?? [];
        const groupOf = (first: number, length: number) =>
          Array.from({ length }, (_, i) => ({
            // The group may have the same batch twice.
            ...batchOf(`${first + generate(fc.nat, i)}`, generate(fc.array, event(ids), { maxLength: 40 })),
            source: { name: generate(fc.constantFrom, 's', 't'), format: 'events' },
          }));
        const [before, own, other] = [groupOf(0, 2), groupOf(10, 3), groupOf(20, 2)];
        // So few that requests of the group are forgotten.
        const limits = { ...LIMITS, requestsMax: generate(fc.constantFrom, 6, 1_000) };
        const contents = results.map(({ schema, ids: sameIds }, i) => {
          expect(sameIds).toEqual(ids);
          append(schema, before, undefined, limits);
          const prepared = i === 0 ? finish(prepareGroup(schema, own, NOW, limits)) : undefined;
          if (change === 'append') append(schema, other, undefined, limits);
          if (change === 'same batch') append(schema, own.slice(1), undefined, limits);
          if (change === 'deleted host') {
            schema.root.transactionSync(() => deleteHost(schema, 'p', ids[0] ?? ''));
          }
          if (change === 'deleted lists') {
            for (const step of deleteTopListsSteps(schema, 'p')) schema.root.transactionSync(step);
          }
          if (change === 'horizon') {
            schema.root.transactionSync(() => schema.meta.putSync('horizon', NOW + HOUR_MS));
          }
          return { result: append(schema, own, prepared, limits), content: contentOf(schema) };
        });
        expect(contents[0]).toEqual(contents[1]);
      }),
      { numRuns: scaled(30) },
    );
  });
});
