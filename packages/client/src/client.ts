import { sleep } from './abort.ts';
import { field, jsonOf, unexpected } from './answer.ts';
import type { Authorize } from './authorize.ts';
import { call, type Transport } from './call.ts';
import { type Parameter, queryString } from './query-string.ts';
import {
  ATTACK_TYPES,
  type AttackTypes,
  type Connection,
  type Host,
  type List,
  type Timeline,
} from './results.ts';
import type { Fetch } from './send.ts';

export interface Client {
  /** Requests and attacks over time. */
  timeline(query: TimelineQuery): Promise<Timeline>;
  /** Attacks by category. */
  attackTypes(query: AttackTypesQuery): Promise<AttackTypes>;
  /** The protected domains, by name. */
  hosts(query?: HostsQuery): Promise<List<Host>>;
  /** The log sources, by name. */
  connections(query?: PageQuery): Promise<List<Connection>>;
}

export interface ClientOptions {
  /** The address before `/v1`. */
  baseUrl: string;
  projectId: string;
  authorize: Authorize;
  fetch?: Fetch | undefined;
  /** Milliseconds since the epoch. */
  now?: (() => number) | undefined;
  /** Waits between attempts; rejects when the signal is aborted. */
  sleep?: ((time_ms: number, signal?: AbortSignal) => Promise<void>) | undefined;
  /** From 0 to 1, for the length of these waits. */
  random?: (() => number) | undefined;
}

export interface Abortable {
  signal?: AbortSignal | undefined;
}

/** From `from` until just before `to`, in milliseconds since the epoch; or a number of days until now. */
export type Range =
  | { from: number; to: number; recent?: undefined }
  | { recent: Recent; from?: undefined; to?: undefined };

export type Recent = 'today' | 'yesterday' | '3days' | '1week' | '1month';

/** Absent, the hosts are the whole project. An empty list is refused: as a filter it would leave nothing. */
interface ByHosts {
  hosts?: readonly string[] | undefined;
}

/** `timezone` is an offset like `+08:00`. */
export type TimelineQuery = Range & ByHosts & Abortable & { timezone?: string | undefined };

export type AttackTypesQuery = Range & ByHosts & Abortable;

/** One page of a list; without `limit` as many items as the service lists at most. */
export interface PageQuery extends Abortable {
  /** Items to leave out. */
  offset?: number | undefined;
  limit?: number | undefined;
}

export interface HostsQuery extends PageQuery {
  /** Part of the name. */
  hostname?: string | undefined;
}

export function createClient(options: ClientOptions): Client {
  const transport: Transport = {
    authorize: options.authorize,
    fetch: options.fetch ?? fetch,
    now: options.now ?? Date.now,
    sleep: options.sleep ?? sleep,
    random: options.random ?? Math.random,
  };
  const project = `${options.baseUrl.replace(/\/+$/, '')}/v1/${encodeURIComponent(options.projectId)}`;

  async function get<T>(path: string, fields: Fields<T>, parameters: Parameters, signal?: AbortSignal) {
    const answer = await call(`${project}${path}${queryString(parameters)}`, transport, signal);
    const body = jsonOf(answer);
    const missing = fields.find((name) => field(body, name) === undefined);
    if (missing !== undefined) {
      const fault = body === undefined ? 'is not JSON' : `lacks ${missing}`;
      throw unexpected(answer, `The answer to ${answer.source} ${fault}. Is that the address of the API?`);
    }
    // The fields are there; their content is the promise of the API.
    return body as T;
  }

  return {
    timeline: async ({ from, to, timezone, hosts, recent, signal }) =>
      get<Timeline>(
        '/waf/event/timeline',
        ['requests', 'attacks'],
        { from, to, timezone, hosts: filled(hosts), recent },
        signal,
      ),
    attackTypes: async ({ from, to, hosts, recent, signal }) =>
      get<AttackTypes>(
        '/waf/event/attack/type',
        ATTACK_TYPES,
        { from, to, hosts: filled(hosts), recent },
        signal,
      ),
    hosts: async ({ offset, limit, hostname, signal } = {}) =>
      get<List<Host>>('/waf/instance', ['total', 'items'], { offset, limit, hostname }, signal),
    connections: async ({ offset, limit, signal } = {}) =>
      get<List<Connection>>('/connections', ['total', 'items'], { offset, limit }, signal),
  };
}

type Fields<T> = readonly (keyof T & string)[];
type Parameters = Readonly<Record<string, Parameter>>;

function filled(hosts: readonly string[] | undefined): readonly string[] | undefined {
  if (hosts?.length !== 0) return hosts;
  throw new TypeError('hosts is empty; leave it out to ask for the whole project.');
}
