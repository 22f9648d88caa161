/** Each call of an operation to files and LMDB fails in turn, or the process is killed before it. Then the data is opened again. */
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AUDIT_FILE_BYTES_MAX, openAuditFile } from '../../../packages/server/src/audit/audit-file.ts';
import { type AuditEntry, allRecords } from '../../../packages/server/src/audit/audit-trail.ts';
import { lmdbStore } from '../../../packages/server/src/store/lmdb/lmdb.ts';
import { repairStatistics } from '../../../packages/server/src/store/lmdb/repair.ts';
import { openTables } from '../../../packages/server/src/store/lmdb/schema.ts';
import { type Store, StoreDamaged } from '../../../packages/server/src/store/store.ts';
import { memoryStore } from '../../memory-store.ts';
import { NOW } from '../../store-conformance/data.ts';
import { failNth, observeCalls } from './calls.ts';
import { batch, fill, stateOf, statesOf } from './state.ts';

type Outcome = 'done' | 'failed' | 'killed';

interface Operation {
  /** Creates the data in a new directory. */
  prepare(directory: string): Promise<void>;
  /** Rejects if it fails. Can be repeated after that. */
  run(directory: string): Promise<void>;
  /** Compares the data of a process that has ended with the oracle. */
  check(directory: string, outcome: Outcome): Promise<void>;
}

/** A lock file that LMDB fills. Without one, every process of the machine is searched for the data file. */
const NO_LOCK = Buffer.alloc(4_096);

let root: string;
let directories = 0;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'wafstat-nth-call-'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

function newDirectory(): string {
  const directory = join(root, String(++directories));
  mkdirSync(directory);
  return directory;
}

/** A copy, as the next process finds it: no process has a lock. */
function copyOf(directory: string): string {
  const copy = newDirectory();
  cpSync(directory, copy, { recursive: true });
  for (const name of readdirSync(copy, { recursive: true, encoding: 'utf8' }))
    if (name.endsWith('-lock')) writeFileSync(join(copy, name), NO_LOCK);
  return copy;
}

function hashOf(directory: string): string {
  const hash = createHash('sha1');
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    hash.update(`${entry.parentPath.slice(directory.length)}/${entry.name} `);
    if (entry.isFile() && !entry.name.endsWith('-lock'))
      hash.update(readFileSync(join(entry.parentPath, entry.name)));
  }
  return hash.digest('hex');
}

/** Runs the operation with an error of each call, and as if the process was killed before each call. */
async function failEachCall({ prepare, run, check }: Operation): Promise<void> {
  const original = newDirectory();
  await prepare(original);
  const snapshots = new Map<string, string>();
  const clean = copyOf(original);
  let calls = 0;
  await observeCalls(
    () => {
      calls++;
      // A killed process leaves what the files have at this moment.
      const hash = hashOf(clean);
      if (!snapshots.has(hash)) snapshots.set(hash, copyOf(clean));
      return undefined;
    },
    () => run(clean),
  );
  await check(copyOf(clean), 'done');
  expect(calls).toBeGreaterThan(5);
  for (const killed of snapshots.values()) {
    await check(copyOf(killed), 'killed');
    await run(killed);
    await check(copyOf(killed), 'done');
  }
  const before = hashOf(original);
  for (let n = 0; n < calls; n++) {
    const directory = copyOf(original);
    let call = '';
    const fail = failNth(n, 'error');
    const observe = (name: string) => {
      const fault = fail(name);
      if (fault) call = name;
      return fault;
    };
    try {
      const outcome = await observeCalls(observe, () => run(directory)).then(
        () => 'done' as const,
        () => 'failed' as const,
      );
      if (outcome === 'done' || hashOf(directory) !== before) await check(copyOf(directory), outcome);
      await run(directory);
      await check(copyOf(directory), 'done');
    } catch (error) {
      throw new Error(`call ${n + 1} of ${calls} (${call}) failed, and then: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }
}

const statistics = (directory: string) => join(directory, 'statistics.mdb');

async function withStore<T>(directory: string, action: (store: Store) => Promise<T>): Promise<T> {
  const store = lmdbStore(statistics(directory), () => NOW);
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

const prepare = (directory: string) => withStore(directory, async (store) => void (await fill(store)));

test('append', async () => {
  const { before, after, hosts } = await statesOf((store, ids) => store.append(batch('new', ids)));
  await failEachCall({
    prepare,
    run: (directory) => withStore(directory, async (store) => void (await store.append(batch('new', hosts)))),
    check: async (directory, outcome) => {
      const possible = { done: [after], failed: [before], killed: [before, after] };
      expect(possible[outcome]).toContain(await withStore(directory, stateOf));
    },
  });
});

test('creation of a file', async () => {
  const empty = await stateOf(memoryStore(() => NOW));
  await failEachCall({
    prepare: async () => {},
    run: (directory) => withStore(directory, async () => {}),
    check: async (directory) => expect(await withStore(directory, stateOf)).toBe(empty),
  });
});

test('repair', async () => {
  // One event: a repair reads everything, and each read is a call that can fail.
  const one = batch('one', [null], 0, [0]);
  const oracle = memoryStore(() => NOW);
  await oracle.append(one);
  const before = await stateOf(oracle);
  const damaged = async (directory: string) => {
    const { root: file, cells } = openTables(statistics(directory));
    // One record of each level of counters.
    for (const level of [0, 1, 2]) {
      const [entry] = [...cells.getRange()].filter(({ key }) => key[0] === level && key.readUInt32BE(5) > 0);
      if (entry === undefined) throw new Error(`level ${level} is empty`);
      const value = Buffer.from(entry.value);
      value.writeUInt8(value.readUInt8(5) ^ 1, 5);
      cells.putSync(Buffer.from(entry.key), value);
    }
    await file.close();
  };
  await failEachCall({
    prepare: async (directory) => {
      await withStore(directory, (store) => store.append(one));
      await damaged(directory);
    },
    run: async (directory) => {
      expect((await repairStatistics(statistics(directory))).lost).toEqual([]);
    },
    check: async (directory, outcome) => {
      const state = await withStore(directory, stateOf).catch((error) => {
        expect(error).toBeInstanceOf(StoreDamaged);
        return 'damaged';
      });
      expect(outcome === 'done' ? [before] : [before, 'damaged']).toContain(state);
    },
  });
});

test('rotation of the audit trail', async () => {
  const entry = (id: string): AuditEntry => ({
    ...{ id, user: 'admin', via: 'console', action: 'user.add', outcome: 'done' },
    object: { type: 'user', name: 'alice' },
  });
  const trail = (directory: string) => openAuditFile(directory, () => NOW);
  const archive = (number: number) => `audit.log.2026010${number}T000000000Z.0123456789abcdef`;
  const line = `${'x'.repeat(65_535)}\n`;
  await failEachCall({
    prepare: async (directory) => {
      for (const number of [1, 2, 3]) writeFileSync(join(directory, archive(number)), '');
      writeFileSync(join(directory, 'audit.log'), line.repeat(AUDIT_FILE_BYTES_MAX / line.length - 1));
      trail(directory).appendSync(entry('before'));
      appendFileSync(join(directory, 'audit.log'), `${'x'.repeat(65_000)}\n`);
    },
    run: async (directory) => trail(directory).appendSync(entry('new')),
    check: async (directory, outcome) => {
      const ids = (await allRecords(trail(directory))).flatMap((each) =>
        each === 'damaged' ? [] : [each.id],
      );
      expect(ids.filter((id) => id === 'before')).toEqual(['before']);
      if (outcome === 'done') expect(ids.at(-1)).toBe('new');
      // The oldest may be deleted, the others not.
      expect(readdirSync(directory)).toEqual(expect.arrayContaining([archive(2), archive(3)]));
    },
  });
});
