/** Intercepts the calls that an operation makes to files, LMDB and PostgreSQL, so that any of them can fail. */
import type { EventEmitter } from 'node:events';
import fs from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import 'lmdb';
import pg from 'pg';

/** `lost before`, `lost after`: the connection breaks before PostgreSQL gets the statement, or before the response arrives. */
export type Fault = 'error' | 'lost before' | 'lost after';

/** Called before each call. Returns the fault of this call. */
type Observer = (name: string) => Fault | undefined;

let observer: Observer | null = null;
/** Inside a call: what it calls itself is part of it. */
let isInside = false;

/** Reports the calls of an operation. */
export async function observeCalls<T>(observe: Observer, operation: () => Promise<T>): Promise<T> {
  observer = observe;
  const restoreFiles = interceptFiles();
  try {
    return await operation();
  } finally {
    restoreFiles();
    observer = null;
  }
}

/** The fault of the n-th call, counted from 0. If the connection is lost, the process is dead: it makes no more calls. */
export function failNth(n: number, fault: Fault): Observer {
  let calls = 0;
  return () => {
    const call = calls++;
    if (call > n && fault !== 'error') return 'lost before';
    return call === n ? fault : undefined;
  };
}

/** Runs a call as a whole, or throws `error`. */
function intercept<T>(name: string, error: () => Error, run: () => T): T {
  if (observer === null || isInside) return run();
  isInside = true;
  try {
    if (observer(name) !== undefined) throw error();
    return run();
  } finally {
    isInside = false;
  }
}

const FILE_CALLS = [
  ...(['chmodSync', 'copyFileSync', 'existsSync', 'fchownSync', 'fdatasyncSync', 'fstatSync'] as const),
  ...(['fsyncSync', 'lstatSync', 'mkdirSync', 'openSync', 'readSync', 'readdirSync'] as const),
  ...(['renameSync', 'rmSync', 'statSync', 'writeSync'] as const),
];

function interceptFiles(): () => void {
  const originals = FILE_CALLS.map((name) => [name, fs[name]] as const);
  for (const [name, original] of originals) {
    const error = () => Object.assign(new Error(`EIO: i/o error, ${name}`), { code: 'EIO', errno: -5 });
    const call = original as (...args: unknown[]) => unknown;
    const observed = (...args: unknown[]) =>
      // No other process has a file open. The search for them ignores errors, and makes thousands of calls.
      args[0] === '/proc' ? [] : intercept(name, error, () => call(...args));
    Object.assign(fs, { [name]: name === 'existsSync' ? orFalse(observed) : observed });
  }
  syncBuiltinESMExports();
  return () => {
    Object.assign(fs, Object.fromEntries(originals));
    syncBuiltinESMExports();
  };
}

/** As `existsSync` itself: a file that cannot be examined does not exist. */
function orFalse(call: (...args: unknown[]) => unknown): (...args: unknown[]) => unknown {
  return (...args) => {
    try {
      return call(...args);
    } catch {
      return false;
    }
  };
}

const LMDB_READS = ['get', 'getBinaryFast', 'getRange', 'getKeys', 'doesExist'];
const LMDB_WRITES = ['putSync', 'removeSync', 'clearSync', 'openDB', 'backup'];
const LMDB_TRANSACTIONS = ['transactionSync', 'childTransaction'];

const ioError = () => Object.assign(new Error('Input/output error'), { code: 5 });

type Method = (this: unknown, ...args: unknown[]) => unknown;

/** The class of an LMDB file is created when the file is opened, and its methods are replaced meanwhile (lmdb/files.ts). */
function interceptLmdb(prototype: Record<string, Method>): void {
  for (const name of [...LMDB_READS, ...LMDB_WRITES, ...LMDB_TRANSACTIONS]) {
    let method = prototype[name] as Method;
    function call(this: unknown, ...args: unknown[]): unknown {
      if (isInside || !LMDB_TRANSACTIONS.includes(name))
        return intercept(`lmdb.${name}`, ioError, () => method.apply(this, args));
      const [action, ...rest] = args as [() => unknown];
      return intercept('lmdb.begin', ioError, () => method.apply(this, [() => transact(action), ...rest]));
    }
    Object.defineProperty(prototype, name, {
      get: () => call,
      set: (replacement: Method) => {
        method = replacement;
      },
    });
  }
}

/** An error at the end of the action: like a failed commit, it changes nothing. */
function transact(action: () => unknown): unknown {
  const wasInside = isInside;
  isInside = false;
  try {
    const result = action();
    intercept('lmdb.commit', ioError, () => {});
    return result;
  } finally {
    isInside = wasInside;
  }
}

interface LmdbParts {
  EventEmitter: typeof EventEmitter;
  setExternals(parts: object): void;
}

// The base class of all LMDB files is the only part of them that exists before one is opened.
const lmdbDirectory = dirname(dirname(createRequire(import.meta.url).resolve('lmdb')));
const lmdb: LmdbParts = await import(/* @vite-ignore */ pathToFileURL(join(lmdbDirectory, 'native.js')).href);
const intercepted = new WeakSet<object>();
lmdb.setExternals({
  ...lmdb,
  EventEmitter: class extends lmdb.EventEmitter {
    constructor() {
      super();
      const prototype = new.target.prototype;
      if (!intercepted.has(prototype)) interceptLmdb(prototype as unknown as Record<string, Method>);
      intercepted.add(prototype);
    }
  },
});

/** An error that the server sends: it ends the transaction. */
const FAILING_STATEMENT = `DO $$ BEGIN RAISE EXCEPTION 'simulated' USING ERRCODE = '40001'; END $$`;

interface PostgresClient {
  query(...args: unknown[]): Promise<unknown>;
  connection: { stream: { destroy(): void } };
}

const client = pg.Client.prototype as unknown as PostgresClient;
const { query } = client;
client.query = function (this: PostgresClient, ...args: unknown[]): Promise<unknown> {
  const fault = observer?.('query');
  const run = () => query.apply(this, args);
  if (fault === undefined) return run();
  if (fault === 'error') return query.call(this, FAILING_STATEMENT);
  const lose = () => this.connection.stream.destroy();
  if (fault === 'lost before') lose();
  return run().then(
    () => {
      lose();
      throw new Error('Connection terminated unexpectedly');
    },
    (error: unknown) => {
      lose();
      throw error;
    },
  );
};
