/** Connections to PostgreSQL: a limited pool, prepared statements with bound values, timeouts, transactions. */

import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { recordsRead } from '../diagnostics.ts';
import { afterRunning } from '../running-time.ts';
import { StoreMisconfigured, StoreNotWritable, StoreUnavailable } from '../store/store.ts';
import { type DatabaseUrl, describeUrl } from './url.ts';

export interface DatabaseOptions {
  url: DatabaseUrl;
  password: string;
  /** The schema that holds the tables. Must be a plain SQL name. */
  schema: string;
  /** Whether to encrypt and verify the connection to this server. */
  usesTls: (host: string) => boolean;
  /** How long one statement may take. */
  timeoutMs: number;
  connectionsMax: number;
}

export type Row = Readonly<Record<string, unknown>>;
export type Value = string | number | boolean | Buffer | null | readonly (string | number | null)[];

/** The values of each column, for `unnest`. */
export function columnsOf<R, K extends keyof R>(rows: readonly R[], ...names: readonly K[]): R[K][][] {
  return names.map((name) => rows.map((row) => row[name]));
}

/** A statement failed because of its values or the tables. The server is fine. */
export class StatementFailed extends Error {
  /** SQLSTATE */
  readonly code: string;

  constructor(message: string, code: string, options: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Another transaction holds the lock. */
export class LockTimeout extends StoreUnavailable {}

/** Time for the response after the server has cancelled a statement. */
const GRACE_MS = 2_000;
const CONNECT_MS_MAX = 5_000;
/** If this process itself was too busy to notice a connection. */
const CONNECT_ATTEMPTS_MAX = 3;
const LOCK_MS_MAX = 5_000;
const IDLE_MS_MAX = 60_000;
/** The messages of `pg` if it gets no connection in time. */
const CONNECT_TIMEOUT =
  /^(?:timeout exceeded when trying to connect|Connection terminated due to connection timeout)$/;
/** The message of `pg` if a statement gets no response in time. */
const READ_TIMEOUT = 'Query read timeout';
/** Numbers in counters are exact up to 2^53. */
const INT8 = 20;

/** Runs statements on one connection. */
export type Run = <R extends Row>(sql: string, values?: readonly Value[]) => Promise<R[]>;

export class Database {
  readonly schema: string;
  readonly #options: DatabaseOptions;
  readonly #pool: pg.Pool;
  readonly #name: string;
  /** The server that the last connection was made to. */
  #server = 0;
  /** Another program handles the connections. */
  #isPooled = false;
  /** How many statements got no response in time. */
  #responseTimeouts = 0;
  /** The number of response timeouts when each connection was made. */
  readonly #timeoutsBefore = new WeakMap<pg.PoolClient, number>();

  constructor(options: DatabaseOptions) {
    this.#options = options;
    const { url, schema, timeoutMs } = options;
    this.schema = schema;
    this.#name = `PostgreSQL at ${describeUrl(url)}`;
    const nextServer = () => url.servers[this.#server] as DatabaseUrl['servers'][number];
    class Client extends pg.Client {
      constructor(config: pg.ClientConfig) {
        const { host, port } = nextServer();
        // The pool hides the password from copies of the settings.
        super({ ...config, host, port, password: options.password, ssl: tlsOf(options, host) });
        failOnMalformedData(this);
      }
    }
    this.#pool = new pg.Pool({
      Client: Client as unknown as new () => pg.ClientBase,
      user: url.user,
      database: url.database,
      application_name: 'wafstat',
      max: options.connectionsMax,
      idleTimeoutMillis: IDLE_MS_MAX,
      connectionTimeoutMillis: CONNECT_MS_MAX,
      query_timeout: timeoutMs + GRACE_MS,
      keepAlive: true,
      // Sends the statements of a transaction without waiting for each response.
      pipeline: true,
      types: { getTypeParser },
      verify: (client: pg.PoolClient, done: (error?: Error) => void) => {
        prepareSession(client, schema, timeoutMs).then((isPooled) => {
          this.#isPooled ||= isPooled;
          done();
        }, done);
      },
    } as pg.PoolConfig & Record<string, unknown>);
    // Connections that break are replaced, and the next statement reports the failure. Without these, one that breaks
    // between two statements would end the process.
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => {
      client.on('error', () => {});
      this.#timeoutsBefore.set(client, this.#responseTimeouts);
    });
  }

  /** Runs one statement. `responseMs` is how long to wait for the response, if not as long as by default. */
  async run<R extends Row>(sql: string, values: readonly Value[] = [], responseMs?: number): Promise<R[]> {
    return this.#with((run) => run<R>(sql, values), responseMs);
  }

  /**
   * Runs a transaction. `action` may start statements without awaiting each: they run in order, and the last of them may
   * be `COMMIT` or `ROLLBACK`, which saves a round trip. If it rejects before that, nothing is changed.
   */
  async transaction<T>(action: (run: Run) => Promise<T>, begin = 'BEGIN'): Promise<T> {
    return this.#with(async (run) => {
      let hasEnded = false;
      let isCommitSent = false;
      const began = run(begin);
      const runInside: Run = async <R extends Row>(sql: string, values?: readonly Value[]) => {
        isCommitSent ||= sql === 'COMMIT';
        hasEnded ||= isCommitSent || sql === 'ROLLBACK';
        // If the transaction did not begin, each statement commits: then nothing that was read may lead to changes.
        const [rows] = await Promise.all([run<R>(sql, values), began]);
        return rows;
      };
      try {
        const [, result] = await Promise.all([began, action(runInside)]);
        if (!hasEnded) await runInside('COMMIT');
        return result;
      } catch (error) {
        if (!isCommitSent || !(error instanceof StoreUnavailable) || isRolledBack(error.cause)) throw error;
        throw new StoreUnavailable(error.message, { cause: error.cause, outcomeUnknown: true });
      }
    });
  }

  /**
   * Rejects if statements run in the sessions of other clients, as with PgBouncer in transaction mode: their settings, and
   * so their tables, may be those of another program.
   */
  async checkSessions(): Promise<void> {
    await this.#with(async (first) => {
      if (!this.#isPooled) return;
      const id = randomBytes(8).toString('hex');
      const read = `SELECT current_setting('wafstat.session', true) = '${id}' AS "isSame"`;
      await first(`SELECT set_config('wafstat.session', '${id}', false)`);
      const isMixed = await this.transaction(async (second) => {
        const [other] = await second<{ isSame: boolean | null }>(read);
        return other?.isSame || !(await first<{ isSame: boolean | null }>(read))[0]?.isSame;
      });
      if (isMixed) {
        throw new StoreMisconfigured(
          `${this.#name} is a connection pooler in transaction mode: use its session mode, or connect directly`,
        );
      }
    });
  }

  /** Rejects with StoreNotWritable if transactions are read-only. */
  async checkWritable(): Promise<void> {
    const [row] = await this.run<{ readOnly: boolean }>(
      `SELECT current_setting('transaction_read_only')::bool AS "readOnly"`,
    );
    if (!row?.readOnly) return;
    const trouble = 'the database is read-only';
    throw new StoreNotWritable(`${this.#name} accepts no writes: ${trouble}`, trouble);
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #with<T>(action: (run: Run) => Promise<T>, responseMs?: number): Promise<T> {
    const client = await this.#connect();
    let failure: Error | undefined;
    const run: Run = async <R extends Row>(text: string, values: readonly Value[] = []) => {
      try {
        // Statements without values are few, or change the schema: they are not worth preparing.
        const name = values.length === 0 ? {} : { name: nameOf(text) };
        const limit = responseMs === undefined ? {} : { query_timeout: responseMs };
        const result = await client.query({ ...name, ...limit, text, values: [...values] });
        recordsRead.publish(result.rows.length);
        return result.rows as R[];
      } catch (error) {
        if ((error as Error).message === READ_TIMEOUT) this.#responseTimeouts++;
        // The first one is the cause of the others.
        failure ??= this.#failureOf(error);
        throw failure;
      }
    };
    try {
      return await action(run);
    } catch (error) {
      failure ??= error as Error;
      throw error;
    } finally {
      // Closing the connection rolls back whatever is open.
      client.release(failure !== undefined);
    }
  }

  /** Tries each server once. */
  async #connect(): Promise<pg.PoolClient> {
    const { servers } = this.#options.url;
    const failures: Error[] = [];
    for (let i = 0; i < servers.length; i++) {
      const server = this.#server;
      try {
        return await this.#checkOut();
      } catch (error) {
        failures.push(this.#failureOf(error));
        // Unless another caller has moved on already.
        if (this.#server === server) this.#server = (server + 1) % servers.length;
      }
    }
    // A wrong password on one server says more than that another one is down.
    throw failures.find((failure) => failure instanceof StoreMisconfigured) ?? failures[0];
  }

  /**
   * A connection that was made after the last response timeout. If the server has lost power, older connections get no
   * response either, and each would cost the time of a statement.
   */
  async #checkOut(): Promise<pg.PoolClient> {
    for (let attempt = 1; ; ) {
      const client = await this.#connectOnce(attempt === CONNECT_ATTEMPTS_MAX);
      if (client === null) {
        attempt++;
        continue;
      }
      if (this.#timeoutsBefore.get(client) === this.#responseTimeouts) return client;
      client.release(true);
    }
  }

  /** Null if this process was busy or stopped for most of the time, unless it is the last attempt. */
  async #connectOnce(isLast: boolean): Promise<pg.PoolClient | null> {
    let hasWaited = isLast;
    const wait = afterRunning(CONNECT_MS_MAX / 2, () => {
      hasWaited = true;
    });
    try {
      return await this.#pool.connect();
    } catch (error) {
      if (!hasWaited && CONNECT_TIMEOUT.test((error as Error).message)) return null;
      throw error;
    } finally {
      wait.stop();
    }
  }

  #failureOf(error: unknown): Error {
    if (error instanceof StoreUnavailable) return error;
    const { code = '', message } = error as Error & { code?: string };
    const options = { cause: error };
    if (!hasSqlState(error)) {
      const isTls = /^(?:ERR_TLS|CERT_|SELF_SIGNED|UNABLE_TO|DEPTH_ZERO|HOSTNAME_MISMATCH)/.test(code);
      if (isTls || /does not support SSL|SASL|password must be a string/.test(message)) {
        return new StoreMisconfigured(`${this.#name} cannot be used: ${message}`, options);
      }
      return new StoreUnavailable(`${this.#name} does not respond: ${message || code}`, options);
    }
    if (DENIED.test(code)) return new StoreMisconfigured(`${this.#name} denied access: ${message}`, options);
    if (code === UNDEFINED_TABLE) {
      const advice = "create the tables with 'wafstat migrate'";
      return new StoreMisconfigured(`${this.#name} cannot be used: ${message}; ${advice}`, options);
    }
    if (code === DISK_FULL)
      return new StoreNotWritable(`${this.#name} has no space left: ${message}`, 'the disk is full', options);
    if (code === READ_ONLY) {
      const trouble = 'the database is read-only';
      return new StoreNotWritable(`${this.#name} accepts no writes: ${message}`, trouble, options);
    }
    if (code === LOCK_TIMEOUT)
      return new LockTimeout(`another transaction holds a lock on ${this.#name}: ${message}`, options);
    if (UNAVAILABLE.test(code))
      return new StoreUnavailable(`${this.#name} is not available: ${message}`, options);
    return new StatementFailed(`a statement failed on ${this.#name}: ${message}`, code, options);
  }
}

/** Whether the server has sent the error. Codes of Node.js like EPIPE look similar. */
function hasSqlState(error: unknown): boolean {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && /^(?!E[A-Z]{4})[0-9A-Z]{5}$/.test(code);
}

/**
 * Errors from the server mean that it has rolled back, except those that can come after the commit: the session was ended, or
 * a worker of Citus did not respond to its part of the commit.
 */
function isRolledBack(error: unknown): boolean {
  return hasSqlState(error) && !/^(?:XX|57P)/.test((error as { code: string }).code);
}

const UNDEFINED_TABLE = '42P01';
/** Wrong user, password or database, and missing privileges. */
const DENIED = /^(?:28...|3D000|42501)$/;
const DISK_FULL = '53100';
const READ_ONLY = '25006';
const LOCK_TIMEOUT = '55P03';
/** Connection lost, shutdown, too many connections, timeouts, deadlock; a transaction that another failure has aborted. */
const UNAVAILABLE = /^(?:08...|57...|53...|40...|25P0[23]|58...|XX...)$/;

/**
 * All statements look up keys: their plans do not depend on values or statistics, and need not be made again. Citus must know
 * the project to choose the worker, and makes generic plans where it can.
 */
const PLAN_CACHE_MODE = `CASE WHEN current_setting('citus.version', true) IS NULL THEN 'force_generic_plan' ELSE 'auto' END`;

/**
 * Prepares a session in one round trip. The settings override those of the server and of the user. Resolves to whether the
 * session is that of a connection pooler: its process number then differs from the one that was announced.
 */
async function prepareSession(client: pg.ClientBase, schema: string, timeoutMs: number): Promise<boolean> {
  const settings = {
    search_path: `"${schema}"`,
    statement_timeout: String(timeoutMs),
    lock_timeout: String(Math.min(timeoutMs, LOCK_MS_MAX)),
    idle_in_transaction_session_timeout: String(timeoutMs),
    // Each statement sees what was committed before it, for example while it waited for the lock of a project.
    default_transaction_isolation: 'read committed',
    // Appends promise to be durable.
    synchronous_commit: 'on',
    enable_seqscan: 'off',
    enable_hashjoin: 'off',
    enable_mergejoin: 'off',
    jit: 'off',
    max_parallel_workers_per_gather: '0',
    timezone: 'UTC',
  };
  const [row] = (
    await client.query({
      text: `SELECT pg_is_in_recovery() AS "isStandby", pg_backend_pid() AS pid,
               set_config('plan_cache_mode', ${PLAN_CACHE_MODE}, false),
               (SELECT count(set_config(name, setting, false)) FROM unnest($1::text[], $2::text[]) AS s(name, setting))`,
      values: [Object.keys(settings), Object.values(settings)],
    })
  ).rows as { isStandby: boolean; pid: number }[];
  // It shows older snapshots than the primary.
  if (row?.isStandby) {
    const { host, port } = client as pg.Client;
    throw new StoreUnavailable(`PostgreSQL at ${host}:${port} is a standby: only the primary is used`);
  }
  return row?.pid !== (client as pg.ClientBase & { processID: number | null }).processID;
}

interface StreamEvents {
  on(event: string, listener: (chunk: Buffer) => void): unknown;
}

/** The parser of `pg` throws inside the socket handler if bytes are not of the protocol, which would end the process. */
function failOnMalformedData(client: pg.Client): void {
  const { connection } = client as unknown as {
    connection: { attachListeners(stream: StreamEvents): void };
  };
  const attach = connection.attachListeners.bind(connection);
  connection.attachListeners = (given) => {
    const stream = given as Duplex;
    const guarded = (listener: (chunk: Buffer) => void) => (chunk: Buffer) => {
      try {
        if (!stream.destroyed) listener(chunk);
      } catch (error) {
        const { message } = error as Error;
        stream.destroy(new Error(`the response is malformed: ${message}`, { cause: error }));
      }
    };
    attach({
      on: (event, listener) => stream.on(event, event === 'data' ? guarded(listener) : listener),
    });
  };
}

function tlsOf({ url, usesTls }: DatabaseOptions, host: string): pg.ClientConfig['ssl'] {
  if (!usesTls(host)) return false;
  return {
    rejectUnauthorized: true,
    ...(url.caFile === null ? {} : { ca: readFileSync(url.caFile, 'utf8') }),
  };
}

function getTypeParser(oid: number, format?: 'text' | 'binary'): (text: string) => unknown {
  return oid === INT8 ? Number : pg.types.getTypeParser(oid, format as 'text');
}

const names = new Map<string, string>();

/** The name of a prepared statement, which is prepared once per connection. Statements are constants, so there are few. */
function nameOf(sql: string): string {
  let name = names.get(sql);
  if (name === undefined) {
    name = createHash('sha256').update(sql).digest('base64url').slice(0, 20);
    names.set(sql, name);
  }
  return name;
}
