/** Each call of an operation to files and LMDB fails in turn, or the process is killed before it. Then the data is opened again. */
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AUDIT_FILE_BYTES_MAX, openAuditFile } from '../../../packages/server/src/audit/audit-file.ts';
import { type AuditEntry, allRecords } from '../../../packages/server/src/audit/audit-trail.ts';
import { backupCommand } from '../../../packages/server/src/cli/backup.ts';
import type { Io } from '../../../packages/server/src/cli/command.ts';
import type { IdentityStore } from '../../../packages/server/src/identity/identity-store.ts';
import { openLmdbIdentity, repairIdentity } from '../../../packages/server/src/identity/lmdb-identity.ts';
import type { User } from '../../../packages/server/src/identity/records.ts';
import { commitSync, openLmdb } from '../../../packages/server/src/lmdb/files.ts';
import { lmdbStore } from '../../../packages/server/src/store/lmdb/lmdb.ts';
import { repairStatistics } from '../../../packages/server/src/store/lmdb/repair.ts';
import { openTables } from '../../../packages/server/src/store/lmdb/schema.ts';
import { type Store, StoreDamaged } from '../../../packages/server/src/store/store.ts';
import { memoryStore } from '../../memory-store.ts';
import { NOW } from '../../store-conformance/data.ts';
import { failNth, observeCalls } from './calls.ts';
import { batch, fill, HORIZON, isBetween, stateOf, statesOf } from './state.ts';

type Outcome = 'done' | 'failed' | 'killed';

interface Operation {
  /** Creates the data in a new directory. */
  prepare(directory: string): Promise<void>;
  /** Rejects if it fails. Can be repeated after that. */
  run(directory: string): Promise<void>;
  /** Compares the data of a process that has ended with the oracle. */
  check(directory: string, outcome: Outcome): Promise<void>;
}

/** Calls that change no file. */
const READS = /^(?:lmdb\.(?:get|doesExist)|existsSync|read|[fl]?stat)/;

/** A lock file that LMDB fills. Without one, `check` would search every process of the machine for the data file. */
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

/** The files below the directory that this process has open. */
function openFiles(directory: string): string[] {
  const descriptors = '/proc/self/fd';
  if (!existsSync(descriptors)) return [];
  return readdirSync(descriptors).flatMap((fd) => {
    const link = join(descriptors, fd);
    const path = existsSync(link) ? readlinkSync(link) : '';
    return path.startsWith(`${directory}/`) ? [path.slice(directory.length)] : [];
  });
}

/** Runs the operation with an error of each call, and as if the process was killed before each call. */
async function failEachCall({ prepare, run, check }: Operation): Promise<void> {
  const original = newDirectory();
  await prepare(original);
  const checked = new Set<string>();
  /** Files that are the same as others before need not be checked again. */
  const checkOnce = async (directory: string, outcome: Outcome) => {
    const key = `${outcome} ${hashOf(directory)}`;
    if (checked.has(key)) return;
    checked.add(key);
    const copy = copyOf(directory);
    await check(copy, outcome);
    rmSync(copy, { recursive: true });
  };
  const snapshots = new Map<string, string>();
  const clean = copyOf(original);
  let calls = 0;
  let hasRead = false;
  await observeCalls(
    (name) => {
      calls++;
      // A killed process leaves what the files have at this moment.
      const hash = hasRead ? '' : hashOf(clean);
      if (!hasRead && !snapshots.has(hash)) snapshots.set(hash, copyOf(clean));
      hasRead = READS.test(name);
      return undefined;
    },
    () => run(clean),
  );
  await checkOnce(clean, 'done');
  expect(calls).toBeGreaterThan(5);
  for (const killed of snapshots.values()) {
    await checkOnce(killed, 'killed');
    await run(killed);
    await checkOnce(killed, 'done');
  }
  await checkOnce(original, 'failed');
  const unchanged = hashOf(original);
  let directory = copyOf(original);
  for (let n = 0; n < calls; n++) {
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
      await nextTurn();
      expect(openFiles(directory)).toEqual([]);
      // Then the next attempt is the same as with a copy.
      if (outcome === 'failed' && hashOf(directory) === unchanged) continue;
      await checkOnce(directory, outcome);
      await run(directory);
      await checkOnce(directory, 'done');
      rmSync(directory, { recursive: true });
      directory = copyOf(original);
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

test('prune', async () => {
  const prune = (store: Store) => store.prune(HORIZON);
  const { before, after } = await statesOf(prune);
  await failEachCall({
    prepare,
    run: (directory) => withStore(directory, prune),
    check: async (directory, outcome) => {
      const state = await withStore(directory, stateOf);
      if (outcome === 'done') expect(state).toBe(after);
      else expect(isBetween(state, before, after)).toBe(true);
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

/** One event, and its state: repair and backup read everything, and each read is a call that can fail. */
async function oneEvent() {
  const one = batch('one', [null], 0, [0]);
  const oracle = memoryStore(() => NOW);
  await oracle.append(one);
  return { one, before: await stateOf(oracle) };
}

test('repair', async () => {
  const { one, before } = await oneEvent();
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

const identityFile = (directory: string) => join(directory, 'identity.mdb');

async function withIdentity<T>(
  directory: string,
  action: (store: IdentityStore) => Promise<T> | T,
): Promise<T> {
  const store = openLmdbIdentity(
    identityFile(directory),
    openAuditFile(directory, () => NOW),
  );
  try {
    return await action(store);
  } finally {
    await store.close();
  }
}

const putUser = (name: string) => (store: IdentityStore) =>
  store.change((writer) => writer.put('user', { id: 'user0', domain_id: 'domain0', name } as User));
const userNames = (store: IdentityStore) => store.list('user').map(({ name }) => name);

test('backup', async () => {
  const { one, before } = await oneEvent();
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const io = { stdout: output, stderr: output, env: {}, now: () => NOW } as unknown as Io;
  const data = (directory: string) => join(directory, 'data');
  const target = (directory: string) => join(directory, 'backup');
  const contentOf = async (directory: string) => ({
    state: await withStore(directory, stateOf),
    users: await withIdentity(directory, userNames),
  });
  await failEachCall({
    prepare: async (directory) => {
      mkdirSync(data(directory));
      await withStore(data(directory), (store) => store.append(one));
      await withIdentity(data(directory), putUser('alice'));
    },
    run: async (directory) => {
      await rm(target(directory), { recursive: true, force: true });
      const options = { data: data(directory), to: target(directory), json: false };
      await backupCommand.run(
        options,
        [],
        io,
        () => undefined,
        () => undefined,
      );
    },
    check: async (directory, outcome) => {
      const expected = { state: before, users: ['alice'] };
      expect(await contentOf(data(directory))).toEqual(expected);
      // A directory with this name is a whole backup.
      const exists = existsSync(target(directory));
      if (exists) expect(await contentOf(target(directory))).toEqual(expected);
      if (outcome === 'done') expect(exists).toBe(true);
    },
  });
});

test('creation of an identity file', async () => {
  await failEachCall({
    prepare: async () => {},
    run: (directory) => withIdentity(directory, () => {}),
    check: async (directory) => expect(await withIdentity(directory, userNames)).toEqual([]),
  });
});

test('change of a user', async () => {
  await failEachCall({
    prepare: (directory) => withIdentity(directory, putUser('alice')),
    run: (directory) => withIdentity(directory, putUser('bob')),
    check: async (directory, outcome) => {
      const possible = { done: ['bob'], failed: ['alice'], killed: ['alice', 'bob'] };
      expect(possible[outcome]).toContain((await withIdentity(directory, userNames)).join());
    },
  });
});

test('repair of an identity file of a later release', async () => {
  const version = (directory: string) => {
    const file = openLmdb(identityFile(directory));
    return { file, table: file.table<number, 'version'>('meta', { encoding: 'json' }) };
  };
  await failEachCall({
    prepare: async (directory) => {
      await withIdentity(directory, putUser('alice'));
      const { file, table } = version(directory);
      commitSync(file, () => void table.putSync('version', 99));
      await file.root.close();
    },
    run: async (directory) => {
      expect((await repairIdentity(identityFile(directory))).lost).toHaveLength(1);
    },
    check: async (directory) => {
      const { file, table } = version(directory);
      expect(table.get('version')).toBe(99);
      await file.root.close();
    },
  });
});
