/** One ClickHouse server: statements with bound values and a timeout. All failures are StoreUnavailable. */
import {
  type ClickHouseClient,
  ClickHouseLogLevel,
  type ClickHouseSettings,
  createClient,
} from '@clickhouse/client';
import { afterRunning } from '../../running-time.ts';
import { StoreMisconfigured, StoreNotWritable, StoreUnavailable } from '../store.ts';

export interface ServerOptions {
  url: string;
  database: string;
  user: string;
  password: string;
  /** How long one statement may take, from sending it to the last byte of the response. */
  timeoutMs: number;
}

/** The server responded with an error: the statement has ended, and has failed. */
export class StatementFailed extends StoreUnavailable {}

/** Like StatementFailed, because the disk is full. */
export class DiskFull extends StoreNotWritable {
  constructor(message: string, options: ErrorOptions) {
    super(message, 'the disk of ClickHouse is full', options);
  }
}

/** Unknown user, wrong or missing password, missing privileges: exception codes of old and new releases. */
const ACCESS_DENIED = new Set([192, 193, 194, 195, 497, 516]);
/** Since this release, values can be bound over HTTP. Older ones get literals. */
const BINDS_VALUES_SINCE = 21;
/** With the default of ten connections, slow queries would block appends and health checks. */
const CONNECTIONS_MAX = 64;
const PING_MS_MAX = 2_000;
/** A batch can add a megabyte of literals to a statement. */
const STATEMENT_BYTES_MAX = 64 * 1_048_576;
/** No space left: exception codes of old and new releases, and the text of system errors. */
const NO_SPACE = new Set([75, 76, 243]);
/** Settings that are sent if the server knows them. */
const INSERT_SETTINGS: ClickHouseSettings = {
  // A batch of old logs can span more weeks than the default allows.
  max_partitions_per_insert_block: '0',
  // No buffering: `append` promises that rows are visible.
  async_insert: 0,
};

/** Longer responses are buffered on the disk of the server. */
const RESPONSE_BYTES_MAX = 16 * 1_048_576;

/** Parameters of the HTTP interface. By default, every response is written to a file first. */
const HTTP_SETTINGS = { buffer_size: String(RESPONSE_BYTES_MAX) } as ClickHouseSettings;

/** Settings that override the profile of the user. */
const FIXED_SETTINGS: ClickHouseSettings = {
  // An error within a response must not look like its end.
  wait_end_of_query: 1,
  // No partial results.
  timeout_overflow_mode: 'throw',
};

interface Dialect {
  bindsValues: boolean;
  insertSettings: ClickHouseSettings;
}

export class Server {
  readonly #url: string;
  readonly #client: ClickHouseClient;
  readonly #timeoutMs: number;
  readonly #fixedSettings: ClickHouseSettings;
  #dialect: Promise<Dialect> | null = null;

  constructor({ url, database, user, password, timeoutMs }: ServerOptions, client?: ClickHouseClient) {
    this.#url = url;
    this.#timeoutMs = timeoutMs;
    this.#fixedSettings = client === undefined ? { ...FIXED_SETTINGS, ...HTTP_SETTINGS } : FIXED_SETTINGS;
    this.#client =
      client ??
      createClient({
        url,
        database,
        username: user,
        password,
        // None: `#execute` has the timeout, which does not count the time in which this process was stopped.
        request_timeout: 2 ** 31 - 1,
        max_open_connections: CONNECTIONS_MAX,
        log: { level: ClickHouseLogLevel.OFF },
      });
  }

  async select<Row>(sql: string, values: Values = {}, timeoutMs = this.#timeoutMs): Promise<Row[]> {
    const { bindsValues } = await this.#readDialectOnce();
    return this.#execute(async (abort_signal) => {
      const result = await this.#client.query({
        format: 'JSONEachRow',
        clickhouse_settings: this.#settings(bindsValues, timeoutMs),
        abort_signal,
        ...this.#statement(sql, values, bindsValues),
      });
      return result.json<Row>();
    }, timeoutMs);
  }

  /** Runs a statement that changes something. */
  async run(sql: string, values: Values = {}, timeoutMs = this.#timeoutMs): Promise<void> {
    const { bindsValues, insertSettings } = await this.#readDialectOnce();
    const request = {
      clickhouse_settings: { ...insertSettings, ...this.#settings(bindsValues, timeoutMs) },
      ...this.#statement(sql, values, bindsValues),
    };
    await this.#execute(async (abort_signal) => {
      // Only `query` sends long values in the body; in the URL they would exceed its limit.
      if (Object.keys(values).length > 0 && bindsValues) {
        await (await this.#client.query({ ...request, abort_signal, format: 'JSONEachRow' })).text();
      } else await this.#client.command({ ...request, abort_signal });
    }, timeoutMs);
  }

  async insert(table: string, rows: readonly object[]): Promise<void> {
    const { insertSettings } = await this.#readDialectOnce();
    await this.#execute((abort_signal) =>
      this.#client.insert({
        table,
        abort_signal,
        values: rows,
        format: 'JSONEachRow',
        clickhouse_settings: { ...insertSettings, ...this.#fixedSettings },
      }),
    );
  }

  async ping(): Promise<void> {
    await this.select('SELECT 1 AS one', {}, Math.min(this.#timeoutMs, PING_MS_MAX));
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  /** Read once, and again after a failure. */
  #readDialectOnce(): Promise<Dialect> {
    this.#dialect ??= this.#readDialect().catch((error) => {
      this.#dialect = null;
      throw error;
    });
    return this.#dialect;
  }

  async #readDialect(): Promise<Dialect> {
    const names = Object.keys(INSERT_SETTINGS).map((name) => `'${name}'`);
    const [row] = await this.#execute(async (abort_signal) => {
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
      ...this.#fixedSettings,
      ...(bindsValues ? {} : { max_query_size: String(STATEMENT_BYTES_MAX) }),
    };
  }

  async #execute<T>(
    action: (abort_signal: AbortSignal) => Promise<T>,
    timeoutMs = this.#timeoutMs,
  ): Promise<T> {
    const limit = new AbortController();
    const timer = afterRunning(timeoutMs, () => limit.abort());
    try {
      return await action(limit.signal);
    } catch (error) {
      const message = limit.signal.aborted
        ? `no response within ${timeoutMs / 1_000} s`
        : (error instanceof Error ? error.message : String(error)).trim();
      const code = codeOf(error, message);
      const options = { cause: error };
      const at = `ClickHouse at ${this.#url}`;
      if (code === null) throw new StoreUnavailable(`${at} does not respond: ${message}`, options);
      if (ACCESS_DENIED.has(code)) throw new StoreMisconfigured(`${at} denied access: ${message}`, options);
      if (NO_SPACE.has(code) && /space/i.test(message))
        throw new DiskFull(`${at} has no space left: ${message}`, options);
      throw new StatementFailed(`a statement failed on ${at}: ${message}`, options);
    } finally {
      timer.stop();
    }
  }
}

/** The exception code of the server, or null. The client does not parse the messages of version 18.16. */
function codeOf(error: unknown, message: string): number | null {
  const code = (error as { code?: unknown } | null)?.code;
  const digits = typeof code === 'string' && /^\d+$/.test(code) ? code : /^Code: (\d+)/.exec(message)?.[1];
  return digits === undefined ? null : Number(digits);
}

export type Value = string | number | readonly string[] | readonly number[];
export type Values = Readonly<Record<string, Value>>;

/** Literals for servers that cannot bind values over HTTP. This is the only place where a value becomes SQL text. */
const RENDERERS: Readonly<Record<string, (value: Value) => string>> = {
  String: quoted,
  UInt32: (value) => wholeNumber(value, 0xffff_ffff),
  UInt64: (value) => wholeNumber(value, Number.MAX_SAFE_INTEGER),
};

/** Replaces every `{name:Type}` with a literal. A value of the wrong type is a bug. */
export function renderLiterals(sql: string, values: Values): string {
  const pattern = /(\bIN )?\{(\w+):(\w+)(?:\((\w+)\))?\}/g;
  return sql.replace(pattern, (_, before = '', name: string, type: string, inner?: string) => {
    const value = values[name];
    if (value === undefined) throw new TypeError(`missing value for ${name}`);
    if (inner === undefined) return `${before}CAST(${rendererOf(type)(value)} AS ${type})`;
    if (type !== 'Array' || !Array.isArray(value)) throw new TypeError(`${name} is not of type ${type}`);
    const items = (value as Value[]).map(rendererOf(inner)).join(',');
    if (before === '') return `CAST([${items}] AS Array(${inner}))`;
    // An empty list is not SQL.
    if (items === '') throw new TypeError(`${name} is empty`);
    return `IN (${items})`;
  });
}

function rendererOf(type: string): (value: Value) => string {
  const renderer = RENDERERS[type];
  if (renderer === undefined) throw new TypeError(`unknown type ${type}`);
  return renderer;
}

/** Only these three characters have a special meaning within quotes. */
function quoted(value: Value): string {
  if (typeof value !== 'string') throw new TypeError(`${value} is not a string`);
  const escaped = value.replace(/[\\'\0]/g, (character) => (character === '\0' ? '\\0' : `\\${character}`));
  return `'${escaped}'`;
}

function wholeNumber(value: Value, max: number): string {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > max) {
    throw new TypeError(`${value} is not a whole number from 0 to ${max}`);
  }
  return String(value);
}
