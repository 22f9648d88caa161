import { authorizerOf, type Credentials } from './credentials.ts';
import {
  type ApiRequest,
  type Chunks,
  call,
  type Fetch,
  field,
  jsonOf,
  sleep,
  type Timing,
  type Transport,
  unexpected,
} from './transport.ts';

export interface ClientOptions {
  /** The URL of the service, such as `https://waf.example.com`. */
  url: string;
  projectId: string;
  /** Leave out if `fetch` authenticates: by a signature (`signedFetch`), or in a browser by a session cookie. */
  credentials?: Credentials | undefined;
  /**
   * How long to wait for the response to each attempt, in milliseconds; `Infinity` for no limit. A timeout is not retried.
   * @default 60_000 for queries, 600_000 for `ingest`
   */
  timeoutMs?: number | undefined;
  /**
   * How often to repeat a call after a network error, or status 429, 502, 503 or 504. The waits double and have a random
   * part, and are at least as long as `Retry-After` demands. If that is over a minute, the call fails at once.
   * @default 3
   */
  maxRetries?: number | undefined;
  /** Sends the requests, for example through a proxy. @default globalThis.fetch */
  fetch?: Fetch | undefined;
}

export interface Client {
  /** Requests and attacks over time. */
  timeline(query: StatisticsQuery): Promise<Timeline>;
  /** Attacks by category. */
  attackTypes(query: StatisticsQuery): Promise<AttackTypes>;
  /** The hosts of the project, sorted by name: await one page, or iterate over all with `for await`. */
  hosts(query?: HostsQuery): Pages<Host>;
  /** The log sources of the project, sorted by name: await one page, or iterate over all with `for await`. */
  sources(query?: ListQuery): Pages<Source>;
  /**
   * Pushes log lines. Resolves when they are durable. Text, bytes, and a function that opens a stream are retried, and
   * count once because of the idempotency key. A stream itself can be read only once, so it is not retried.
   */
  ingest(lines: Lines, options?: IngestOptions): Promise<IngestResult>;
}

export interface CallOptions {
  /** Ends the call, which then rejects with the reason of the signal. */
  signal?: AbortSignal | undefined;
  /** Overrides `timeoutMs` of the client. */
  timeoutMs?: number | undefined;
}

/** `from` is included, `to` is not; both in milliseconds since the epoch. Or a number of days until now. */
export type TimeRange =
  | { from: number; to: number; recent?: undefined }
  | { recent: Recent; from?: undefined; to?: undefined };

export type Recent = 'today' | 'yesterday' | '3days' | '1week' | '1month';

export type StatisticsQuery = TimeRange &
  CallOptions & {
    /** IDs of hosts; leave out for the whole project. An empty list is an error. */
    hosts?: readonly string[] | undefined;
    /**
     * The offset of local time, such as `+08:00`: for the points of a timeline, and for the days of `recent`.
     * @default '+00:00'
     */
    timezone?: string | undefined;
  };

export interface ListQuery extends CallOptions {
  /** Number of items to skip. */
  offset?: number | undefined;
  /** Number of items per page, 1 to 1,000. @default 1_000 */
  limit?: number | undefined;
}

export interface HostsQuery extends CallOptions {
  /** Number of the page, from 1. Needs `limit`. @default 1 */
  page?: number | undefined;
  /** Number of hosts per page, 1 to 1,000. @default all hosts */
  limit?: number | undefined;
  /** Part of the host name. */
  hostname?: string | undefined;
}

/** A stream is an async iterable of text or bytes, such as a readable stream of Node.js. Browsers rarely send streams. */
export type Lines = string | Uint8Array | Chunks | (() => Chunks);

export interface IngestOptions extends CallOptions {
  /** Name of the log source. @default 'default' */
  source?: string | undefined;
  /** Log format. @default 'auto' */
  format?: string | undefined;
  /** Format of access log lines, as the web server has it in its configuration. */
  pattern?: string | undefined;
  /** The host of all lines, for formats whose lines do not name it. */
  host?: string | undefined;
  /** `registered`: do not register unknown host names. */
  hosts?: 'auto' | 'registered' | undefined;
  /** An offset or an IANA name, for formats whose lines have no time zone. */
  timezone?: string | undefined;
  /** Set it if the lines are compressed. */
  contentEncoding?: 'gzip' | undefined;
  /**
   * 1 to 255 characters. Lines that are pushed again with the same key and source count once. Set it to repeat a failed
   * push yourself.
   * @default a random key
   */
  idempotencyKey?: string | undefined;
}

/** The categories of attacks, in the order of the API specification. */
export const ATTACK_TYPES = [
  'xss',
  'sqli',
  'cmdi',
  'cc',
  'custom',
  'illegal',
  'lfi',
  'robot',
  'antitamper',
  'rfi',
  'vuln',
  'whiteblackip',
  'webshell',
] as const;

export type AttackType = (typeof ATTACK_TYPES)[number];

/** Attacks per category. Their sum equals the attacks in the timeline of the same range. */
export type AttackTypes = Record<AttackType, number>;

/** Both series have the same times. */
export interface Timeline {
  requests: Point[];
  attacks: Point[];
}

export interface Point {
  /** The end of the point, in milliseconds since the epoch. An event at exactly this time is in the next point. */
  time: number;
  num: number;
}

export interface List<Item> {
  /** Number of items on all pages. */
  total: number;
  items: Item[];
}

/** The promise is the first page; the iteration continues over all pages. */
export type Pages<Item> = Promise<List<Item>> & AsyncIterable<Item>;

export interface Host {
  /** For the `hosts` of a query. */
  id: string;
  hostname: string;
  /** When the host was registered, in milliseconds since the epoch. */
  timestamp: number;
}

export interface Source {
  id: string;
  name: string;
  format: string;
  /** IDs of the hosts that it has reported on. */
  hosts: string[];
  /** Records that were counted. */
  events: number;
  /** Records among `events` without a registered host: they count in the total of the project only. */
  without_host: number;
  /** Records that were not counted, by reason. */
  dropped: Record<string, number>;
  /** Time of the earliest event in milliseconds since the epoch, null if there is none. */
  first_seen: number | null;
  /** Time of the latest event in milliseconds since the epoch, null if there is none. */
  last_seen: number | null;
}

export interface IngestResult {
  /** Records that were counted, after a retry only those that the retry counted. */
  accepted: number;
  /** Records that were not counted, by reason. */
  dropped: Record<string, number>;
  /** The first dropped lines. */
  first_drops: { line: number; reason: string; text: string }[];
  /** Records among `accepted` without a registered host: they count in the total of the project only. */
  without_host: number;
  /** All lines were counted before under the same idempotency key. */
  duplicate: boolean;
}

const QUERY_TIMEOUT_MS = 60_000;
const INGEST_TIMEOUT_MS = 600_000;
const MAX_RETRIES = 3;

export function createClient(options: ClientOptions): Client {
  return buildClient(options, { now: Date.now, sleep, random: Math.random });
}

/** Not exported from the package: tests pass their own clock. */
export function buildClient(options: ClientOptions, timing: Timing): Client {
  const { projectId, credentials, timeoutMs, maxRetries = MAX_RETRIES } = options;
  const url = options.url.replace(/\/+$/, '');
  // Browsers reject a `fetch` that is called as a method of another object.
  const fetch: Fetch = options.fetch ?? ((...request) => globalThis.fetch(...request));
  const authorizer = authorizerOf(credentials, {
    identityUrl: url,
    projectId,
    fetch,
    timeoutMs: timeoutMs ?? QUERY_TIMEOUT_MS,
    now: timing.now,
  });
  const transport: Transport = { authorizer, fetch, timing, maxRetries };
  const project = encodeURIComponent(projectId);

  async function requestJson<T>(request: ApiRequest, fields: Fields<T>): Promise<T> {
    const response = await call(request, transport);
    const body = jsonOf(response);
    const missing = fields.find((name) => field(body, name) === undefined);
    if (missing !== undefined) {
      const fault = body === undefined ? 'is not JSON' : `has no field '${missing}'`;
      const message = `The response to ${response.source} ${fault}. Check the URL of the service.`;
      throw unexpected(response, message);
    }
    // The fields exist; their content is up to the API.
    return body as T;
  }

  function get<T>(path: string, fields: Fields<T>, parameters: Parameters, options: CallOptions): Promise<T> {
    return requestJson(
      {
        method: 'GET',
        url: `${url}/v1/${project}${path}${queryString(parameters)}`,
        headers: { Accept: 'application/json' },
        isRepeatable: true,
        timeoutMs: options.timeoutMs ?? timeoutMs ?? QUERY_TIMEOUT_MS,
        signal: options.signal,
      },
      fields,
    );
  }

  /** Pages in a row: `request` gets the number of items before the page, and the number of pages before it. */
  function pages<Item>(
    request: (skipped: number, page: number) => Promise<List<Item>>,
    skip = 0,
  ): Pages<Item> {
    const first = request(skip, 0);
    return Object.assign(first, {
      async *[Symbol.asyncIterator]() {
        let skipped = skip;
        for (let list = await first, page = 1; ; list = await request(skipped, page++)) {
          yield* list.items;
          skipped += list.items.length;
          if (list.items.length === 0 || skipped >= list.total) return;
        }
      },
    });
  }

  return {
    timeline: async (query) =>
      get<Timeline>('/waf/event/timeline', ['requests', 'attacks'], statisticsParameters(query), query),
    attackTypes: async (query) =>
      get<AttackTypes>('/waf/event/attack/type', ATTACK_TYPES, statisticsParameters(query), query),
    hosts({ hostname, page: first = 1, limit, ...options } = {}) {
      if (limit === undefined && first !== 1) throw new TypeError('page needs limit, the hosts per page.');
      const list = (page: number | undefined) =>
        get<List<Host>>('/waf/instance', LIST_FIELDS, { page, pagesize: limit, hostname }, options);
      if (limit === undefined) return pages(() => list(undefined));
      return pages((_, page) => list(first + page), (first - 1) * limit);
    },
    sources({ offset, limit, ...options } = {}) {
      return pages<Source>(
        (skipped) => get('/connections', LIST_FIELDS, { offset: skipped || offset, limit }, options),
        offset,
      );
    },
    async ingest(lines, options = {}) {
      const { source, format, pattern, host, hosts, timezone, contentEncoding, signal } = options;
      const isStream = typeof lines === 'object' && Symbol.asyncIterator in lines;
      return requestJson<IngestResult>(
        {
          method: 'POST',
          url: `${url}/ingest/v1/${project}${queryString({ source, format, pattern, host, hosts, timezone })}`,
          headers: {
            Accept: 'application/json',
            'Idempotency-Key': options.idempotencyKey ?? randomKey(),
            ...(contentEncoding === undefined ? {} : { 'Content-Encoding': contentEncoding }),
          },
          body: isStream ? () => lines : lines,
          isRepeatable: !isStream,
          timeoutMs: options.timeoutMs ?? timeoutMs ?? INGEST_TIMEOUT_MS,
          signal,
        },
        ['accepted', 'dropped'],
      );
    },
  };
}

const LIST_FIELDS = ['total', 'items'] as const;

type Fields<T> = readonly (keyof T & string)[];
type Parameters = Readonly<Record<string, string | number | readonly string[] | undefined>>;

function statisticsParameters({ from, to, timezone, hosts, recent }: StatisticsQuery): Parameters {
  if (hosts?.length === 0) throw new TypeError('hosts is empty. Leave it out to query the whole project.');
  return { from, to, timezone, hosts, recent };
}

/** `?a=1&b=2&b=3`, or nothing. Not URLSearchParams, which writes a space as `+`: in a signature that is a plus. */
function queryString(parameters: Parameters): string {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => {
    const values = value === undefined ? [] : typeof value === 'object' ? value : [value];
    return values.map((one) => `${name}=${encodeURIComponent(one)}`);
  });
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

/** 128 bits. `randomUUID` is missing on pages without TLS. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
