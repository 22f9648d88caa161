/** One ClickHouse server: statements with values, bounded in time. Whatever fails here is StoreUnavailable. */
import {
  type ClickHouseClient,
  ClickHouseLogLevel,
  type ClickHouseSettings,
  createClient,
} from '@clickhouse/client';
import { StoreMisconfigured, StoreUnavailable } from '../store.ts';
import { renderLiterals, type Values } from './literals.ts';

export interface ServerOptions {
  url: string;
  database: string;
  user: string;
  password: string;
  /** How long one statement may take, from sending it to the last byte of its answer. */
  timeoutMs: number;
}

/** Another statement with the same name is running on the server: this one was not begun. */
export class AlreadyRunning extends Error {}

/** The server has answered, and said no: the statement is over, and did not do what it should. */
export class Refused extends StoreUnavailable {}

/** The exception's number in ClickHouse. */
const QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING = 216;
/** No such user, a wrong password, a missing one, no right to it: in the words of old and of new releases. */
const NOT_ALLOWED = new Set([192, 193, 194, 195, 497, 516]);
/** From this release on, values can be bound over HTTP. Older ones get them as literals. */
const BINDS_VALUES_SINCE = 21;
/** A query is two statements. With the client's ten, five slow ones would keep commits and health checks waiting. */
const CONNECTIONS_MAX = 64;
/** Literals stand in the statement itself, and a batch can bring a megabyte of them. */
const STATEMENT_BYTES_MAX = 64 * 1_048_576;
/** Used where the server knows them. Rows must be on disk, or on all shards, when an insert is answered. */
const INSERT_SETTINGS: ClickHouseSettings = {
  insert_distributed_sync: 1,
  // A batch of old logs can span more weeks than the default allows.
  max_partitions_per_insert_block: '0',
  // A row must not sit in a buffer: `append` promises that it is visible.
  async_insert: 0,
};

/** What a profile of the user may say otherwise. */
const ALWAYS: ClickHouseSettings = {
  // An error in the middle of an answer must not look like its end.
  wait_end_of_query: 1,
  // Queries ask the replica of a shard that inserts go to, and another only when that is away: copies come later.
  load_balancing: 'in_order',
  // No half answers.
  timeout_overflow_mode: 'throw',
  skip_unavailable_shards: 0,
  // A statement must not end another of its name, but wait.
  replace_running_query: 0,
};

interface Dialect {
  bindsValues: boolean;
  insertSettings: ClickHouseSettings;
}

export class Server {
  readonly url: string;
  readonly #client: ClickHouseClient;
  readonly #timeoutMs: number;
  #dialect: Promise<Dialect> | null = null;

  constructor({ url, database, user, password, timeoutMs }: ServerOptions, client?: ClickHouseClient) {
    this.url = url;
    this.#timeoutMs = timeoutMs;
    this.#client =
      client ??
      createClient({
        url,
        database,
        username: user,
        password,
        request_timeout: timeoutMs + 1_000,
        max_open_connections: CONNECTIONS_MAX,
        log: { level: ClickHouseLogLevel.OFF },
      });
  }

  async select<Row>(sql: string, values: Values = {}, timeoutMs = this.#timeoutMs): Promise<Row[]> {
    const { bindsValues } = await this.dialect();
    return this.#answer(async (abort_signal) => {
      const result = await this.#client.query({
        format: 'JSONEachRow',
        clickhouse_settings: this.#settings(bindsValues, timeoutMs),
        abort_signal,
        ...this.#statement(sql, values, bindsValues),
      });
      return result.json<Row>();
    }, timeoutMs);
  }

  /** A statement that changes something. While it runs, no other of the same `name` begins. */
  async run(sql: string, values: Values = {}, name?: string): Promise<void> {
    const { bindsValues } = await this.dialect();
    const request = {
      clickhouse_settings: this.#settings(bindsValues),
      ...(name === undefined ? {} : { query_id: name }),
      ...this.#statement(sql, values, bindsValues),
    };
    await this.#answer(async (abort_signal) => {
      // Only `query` sends long values in the body; in the address they would be over its limit.
      if (Object.keys(values).length > 0 && bindsValues) {
        await (await this.#client.query({ ...request, abort_signal, format: 'JSONEachRow' })).text();
      } else await this.#client.command({ ...request, abort_signal });
    });
  }

  async insert(table: string, rows: readonly object[]): Promise<void> {
    const { insertSettings } = await this.dialect();
    await this.#answer((abort_signal) =>
      this.#client.insert({
        table,
        abort_signal,
        values: rows,
        format: 'JSONEachRow',
        clickhouse_settings: { ...insertSettings, ...ALWAYS },
      }),
    );
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  /** What this server understands: asked once, and again after a failure. */
  dialect(): Promise<Dialect> {
    this.#dialect ??= this.#askDialect().catch((error) => {
      this.#dialect = null;
      throw error;
    });
    return this.#dialect;
  }

  async #askDialect(): Promise<Dialect> {
    const names = Object.keys(INSERT_SETTINGS).map((name) => `'${name}'`);
    const [row] = await this.#answer(async (abort_signal) => {
      const result = await this.#client.query({
        abort_signal,
        query: `SELECT version() AS version, groupArray(name) AS names
                FROM system.settings WHERE name IN (${names.join(', ')})`,
        format: 'JSONEachRow',
      });
      return result.json<{ version: string; names: string[] }>();
    });
    const known = new Set(row?.names);
    const settings = Object.entries(INSERT_SETTINGS).filter(([name]) => known.has(name));
    return {
      bindsValues: Number.parseInt(row?.version ?? '0', 10) >= BINDS_VALUES_SINCE,
      insertSettings: Object.fromEntries(settings),
    };
  }

  #statement(sql: string, values: Values, bindsValues: boolean) {
    return bindsValues
      ? { query: sql, query_params: { ...values }, use_multipart_params_auto: true }
      : { query: renderLiterals(sql, values) };
  }

  #settings(bindsValues: boolean, timeoutMs = this.#timeoutMs): ClickHouseSettings {
    return {
      max_execution_time: Math.ceil(timeoutMs / 1_000),
      ...ALWAYS,
      ...(bindsValues ? {} : { max_query_size: String(STATEMENT_BYTES_MAX) }),
    };
  }

  async #answer<T>(
    action: (abort_signal: AbortSignal) => Promise<T>,
    timeoutMs = this.#timeoutMs,
  ): Promise<T> {
    // The client's own time limit is about a silent connection; this one is about the whole statement.
    const limit = AbortSignal.timeout(timeoutMs);
    try {
      return await action(limit);
    } catch (error) {
      const message = limit.aborted
        ? `no answer within ${timeoutMs / 1_000} s`
        : (error instanceof Error ? error.message : String(error)).trim();
      const code = codeOf(error, message);
      if (code === QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING) throw new AlreadyRunning(message);
      if (code !== null && NOT_ALLOWED.has(code)) {
        throw new StoreMisconfigured(`ClickHouse at ${this.url} does not let us in: ${message}`, {
          cause: error,
        });
      }
      if (code !== null) throw new Refused(`ClickHouse at ${this.url} refused: ${message}`, { cause: error });
      throw new StoreUnavailable(`ClickHouse at ${this.url} does not answer: ${message}`, { cause: error });
    }
  }
}

/** The number of the server's exception, null if none came. The client knows current servers' words, not those of 18.16. */
function codeOf(error: unknown, message: string): number | null {
  const code = (error as { code?: unknown } | null)?.code;
  const digits = typeof code === 'string' && /^\d+$/.test(code) ? code : /^Code: (\d+)/.exec(message)?.[1];
  return digits === undefined ? null : Number(digits);
}
