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
  WafstatError,
} from './transport.ts';
import type { TuningReport } from './tuning.ts';

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
  attackTypes(query: AttacksQuery): Promise<AttackTypes>;
  /** The number of attacks. */
  attackCount(query: AttacksQuery): Promise<AttackCount>;
  /** The most attacked hosts, by name. */
  attackedHosts(query: TopAttacksQuery): Promise<Top<HostCount>>;
  /** The addresses of the most attacks. */
  attackSources(query: TopAttacksQuery): Promise<TopAttacks<SourceCount>>;
  /** The number of different addresses of attacks. */
  attackSourceCount(query: AttacksQuery): Promise<AttackSourceCount>;
  /** The number of requests in the busiest second. */
  requestPeak(query: StatisticsQuery): Promise<RequestPeak>;
  /** Requests and attacks for each of the `OVERVIEW_KEYS`. */
  overviewTotals(query: StatisticsQuery): Promise<KeyCount<OverviewKey>[]>;
  /** Requests and attacks over time for each of the `OVERVIEW_KEYS`. */
  overviewTimeline(query: TimelineQuery): Promise<Series<OverviewKey>[]>;
  /** Requests and attacks per second over time for each of the `OVERVIEW_KEYS`. */
  qpsTimeline(query: QpsTimelineQuery): Promise<Series<OverviewKey>[]>;
  /** Attacks over time for each of the `ATTACK_TYPES`, in their order. */
  attackTimeline(query: TimelineQuery & AttackFilter): Promise<Series<AttackType>[]>;
  /** Requests over time for each response code that occurs, ascending, and then `none`. They add up to the requests. */
  responseCodeTimeline(query: ResponseCodesQuery): Promise<Series<string>[]>;
  /** Bytes per second over time. Covers the whole minutes that the range touches. */
  bandwidthTimeline(query: QpsTimelineQuery): Promise<Series<BandwidthKey>[]>;
  /** The paths of the most requests with a response code. The same path on two hosts is two items. */
  errorPages(query: ErrorPagesQuery): Promise<ErrorPages>;
  /** The most attacked hosts, by name, as the overview calls return them. */
  topDomains(query: TopAttacksQuery): Promise<Top<DomainCount>>;
  /** The categories that have attacks, the most frequent first. */
  attackDistribution(query: AttacksQuery): Promise<Top<KeyCount<AttackType>>>;
  /** Attacks that the firewall blocked, and all others. Both are always listed. */
  attackActions(query: AttacksQuery): Promise<Top<KeyCount<AttackAction>>>;
  /** The addresses of the most attacks, as the overview calls return them. */
  topIps(query: TopAttacksQuery): Promise<TopAttacks<BoundedCount & Location>>;
  /** The networks (autonomous systems) of the most attacks, like `AS64500`. Status 404 if the service has no `--geoip`. */
  topNetworks(query: TopAttacksQuery): Promise<TopAttacks<NetworkCount>>;
  /** The most attacked URLs. The same path on two hosts is two items. */
  topUrls(query: TopAttacksQuery): Promise<TopAttacks<UrlCount>>;
  /** The rules of the firewall that matched most attacks, by ID. */
  topRules(query: TopAttacksQuery): Promise<TopAttacks<BoundedCount>>;
  /** The countries of the most attacks, if the log names them, like `DE`. */
  topCountries(query: TopAttacksQuery): Promise<TopAttacks<BoundedCount>>;
  /** The hosts, categories, sources, URLs and countries with the most attacks. */
  classification(query: TopAttacksQuery): Promise<Classification>;
  /** What is going on, in one sentence, and the bursts of attacks in a range: by default, the last 24 hours. */
  situation(query?: SituationQuery): Promise<Situation>;
  /** The names of the attack categories, and how to display them: `tag/threat/map`. */
  threatMap(options?: CallOptions): Promise<ThreatMap>;
  /** The same as `threatMap`, under its other path: `map/threat`. */
  threats(options?: CallOptions): Promise<ThreatMap>;
  /** The hosts of the project, sorted by name: await one page, or iterate over all with `for await`. */
  hosts(query?: HostsQuery): Pages<Host>;
  /** One host, by ID. Rejects with status 404 if the project has no such host. */
  host(id: string, options?: CallOptions): Promise<Host>;
  /** The same hosts as `hosts`, under the path that newer SDKs use: `composite-waf/host`. */
  compositeHosts(query?: HostsQuery): Pages<Host>;
  /** The same hosts as `hosts`, under the path for dedicated instances: `premium-waf/host`. */
  premiumHosts(query?: HostsQuery): Pages<Host>;
  /** The log sources of the project, sorted by name: await one page, or iterate over all with `for await`. */
  sources(query?: ListQuery): Pages<Source>;
  /**
   * The kept attacks of a range, newest first: await one page, or iterate over all with `for await`. Their values come from
   * clients: escape them before you display them. Repeat `to` to read stable pages while events arrive.
   */
  events(query: EventsQuery): Promise<EventList> & AsyncIterable<AttackEvent>;
  /** All kept attacks with an ID, newest first. Rejects with status 404 if there is none. */
  event(id: string, options?: CallOptions): Promise<List<AttackEvent>>;
  /**
   * Rules that may hit users, with the narrowest exclusion of each, from the kept attacks. Hosts, paths and variables come from
   * clients: escape them before you display them.
   */
  tuning(query: TuningQuery): Promise<TuningReport>;
  /** Deletes the kept attacks that the filter selects. Counts stay. Needs the role `admin`. */
  deleteEvents(filter: EventFilter & CallOptions): Promise<DeletedEvents>;
  /** The alerts of the project, by name. */
  alerts(options?: CallOptions): Promise<List<Alert>>;
  /** Adds an alert. Only this response has the secret of its signature. Needs the role `admin`. */
  addAlert(alert: NewAlert, options?: CallOptions): Promise<Alert & { secret?: string }>;
  /** Deletes an alert, by ID, and its incidents. Needs the role `admin`. */
  deleteAlert(id: string, options?: CallOptions): Promise<void>;
  /** The incidents of all alerts, newest first. */
  incidents(query?: ListQuery): Promise<List<Incident>>;
  /** The annotations of a range, by default all, newest first. Texts come from people: escape them before you display them. */
  annotations(query?: AnnotationsQuery): Promise<List<Annotation>>;
  /** Adds an annotation, by default now. Needs the role `ingest` or `admin`. */
  addAnnotation(annotation: NewAnnotation, options?: CallOptions): Promise<Annotation>;
  /** Deletes an annotation, by ID. Needs the role `admin`. */
  deleteAnnotation(id: string, options?: CallOptions): Promise<void>;
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

/** `from` is included, `to` is not; both in milliseconds since the epoch. `recent` means local days of `timezone`. */
export type TimeRange =
  | { from: number; to: number; recent?: undefined }
  | { recent: Recent; from?: undefined; to?: undefined };

export type Recent = 'today' | 'yesterday' | '3days' | '1week' | '1month';

export type StatisticsQuery = TimeRange &
  CallOptions & {
    /** IDs of hosts; leave out for the whole project. An empty list is an error. */
    hosts?: readonly string[] | undefined;
    /**
     * The local clock, an offset such as `+08:00` or a name such as `Europe/Berlin`: for the points of a timeline, and for
     * the days of `recent`.
     * @default '+00:00'
     */
    timezone?: string | undefined;
  };

export type TimelineQuery = StatisticsQuery & {
  /** `DAY`: one point per local day of `timezone`. Without it, the length of the range decides. */
  groupBy?: 'DAY' | undefined;
};

export type QpsTimelineQuery = TimelineQuery & {
  /** 0: the average of each point, rounded to a whole number. 1: its busiest second (of bytes: minute). @default 0 */
  displayOption?: 0 | 1 | undefined;
};

export type ResponseCodesQuery = TimelineQuery & {
  /**
   * `WAF`: what clients got. `UPSTREAM`: what the server behind the firewall responded, if the log has both; `none` if it was
   * not asked.
   * @default 'WAF'
   */
  responseSource?: 'WAF' | 'UPSTREAM' | undefined;
};

export type ErrorPagesQuery = StatisticsQuery & {
  /** @default 404 */
  code?: PageCode | undefined;
  /** Maximum number of items, 1 to 1,000. @default 5 */
  top?: number | undefined;
};

export interface SituationQuery extends CallOptions, Pick<StatisticsQuery, 'hosts'> {
  /** The range of the bursts, at most 92 days. @default 24 hours before `to` */
  from?: number | undefined;
  /** The time of the situation. @default now */
  to?: number | undefined;
  /** The clock of the sentence. @default '+00:00' */
  timezone?: string | undefined;
}

/** Counts only the attacks that the filter selects. By more than categories, it counts the kept attacks. */
export type AttacksQuery = StatisticsQuery & AttackFilter;

export type TopAttacksQuery = AttacksQuery & {
  /** Maximum number of items, 1 to 1,000. @default 5 */
  top?: number | undefined;
};

/** All conditions apply together. Fields with an `n` before their name exclude. An empty list is an error. */
export interface AttackFilter {
  /** Categories. */
  attacks?: readonly AttackType[] | undefined;
  nattacks?: readonly AttackType[] | undefined;
  /** IDs of rules: one of the matched rules is in the list. */
  rules?: readonly string[] | undefined;
  nrules?: readonly string[] | undefined;
  /** Addresses or networks, like `192.0.2.0/24`. */
  sips?: readonly string[] | undefined;
  nsips?: readonly string[] | undefined;
  /** Paths, or prefixes with an asterisk, like `/admin/*`. */
  urls?: readonly string[] | undefined;
  nurls?: readonly string[] | undefined;
  actions?: readonly AttackAction[] | undefined;
  nactions?: readonly AttackAction[] | undefined;
  /** Country codes, like `DE`. */
  ipCountries?: readonly string[] | undefined;
  nipCountries?: readonly string[] | undefined;
  responseCodes?: readonly number[] | undefined;
  nresponseCodes?: readonly number[] | undefined;
  methods?: readonly string[] | undefined;
  nmethods?: readonly string[] | undefined;
}

export interface EventFilter extends AttackFilter {
  /** IDs of hosts. */
  hosts?: readonly string[] | undefined;
  /** Whole host names. */
  domains?: readonly string[] | undefined;
  ids?: readonly string[] | undefined;
  nids?: readonly string[] | undefined;
  /** Part of the address. */
  sip?: string | undefined;
  /** Part of the path. */
  url?: string | undefined;
  /** Part of a value that a rule matched. */
  payload?: string | undefined;
  /** Part of the host name. */
  domain?: string | undefined;
  /** Excludes hosts with this part in the name. */
  ndomain?: string | undefined;
  /** `equal`: the five fields above are whole values. @default 'contain' */
  queryMode?: 'contain' | 'equal' | undefined;
}

export type EventsQuery = TimeRange &
  CallOptions &
  EventFilter & {
    /** The local clock of the days of `recent`. @default '+00:00' */
    timezone?: string | undefined;
    /** The page to return, or to start with, counted from 1. @default 1 */
    page?: number | undefined;
    /** Number of events per page, 1 to 1,000. @default 100 */
    limit?: number | undefined;
    /** @default 'desc' */
    sortDirection?: 'desc' | 'asc' | undefined;
  };

export type TuningQuery = StatisticsQuery & {
  /** The inbound anomaly score from which the firewall blocks. @default 5 */
  threshold?: number | undefined;
  /** The rule ID of the first exclusion. @default 10_000 */
  idFrom?: number | undefined;
};

export interface ListQuery extends CallOptions {
  /** Number of items to skip. */
  offset?: number | undefined;
  /** Number of items per page, 1 to 1,000. @default 1_000 */
  limit?: number | undefined;
}

export interface AnnotationsQuery extends CallOptions {
  from?: number | undefined;
  /** Exclusive. */
  to?: number | undefined;
}

export interface HostsQuery extends CallOptions {
  /** The page to return, or to start with, counted from 1. @default 1 */
  page?: number | undefined;
  /** Number of hosts per page, 1 to 1,000. @default 1_000 */
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

/** The response codes whose pages `errorPages` lists. */
export const PAGE_CODES = [404, 500, 502] as const;

export type PageCode = (typeof PAGE_CODES)[number];

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

export interface AttackCount {
  attack_num: number;
}

export interface RequestPeak {
  qps: number;
}

/**
 * What the overview calls count: requests (`ACCESS`), attacks in four groups of categories (`CRAWLER`, `CC`, `PRECISE`,
 * `WEB_ATTACK`), and all attacks (`ATTACK`), which is the sum of the four groups.
 */
export const OVERVIEW_KEYS = ['ACCESS', 'CRAWLER', 'CC', 'PRECISE', 'WEB_ATTACK', 'ATTACK'] as const;

export type OverviewKey = (typeof OVERVIEW_KEYS)[number];

/** `log`: the firewall did not block the attack, or the log does not say. */
export type AttackAction = 'block' | 'log';

export interface KeyCount<Key extends string = string> {
  key: Key;
  num: number;
}

export interface HostCount {
  /** The host name. */
  host: string;
  num: number;
}

export interface DomainCount extends KeyCount {
  /** Always empty. */
  web_tag: string;
}

/** The points of all series of a response have the same times. */
export interface Series<Key extends string = string> {
  key: Key;
  timeline: Point[];
}

/** The items with the highest counts, the highest first. */
export interface Top<Item> {
  /** Number of all items that have attacks, of which `items` may be the first few. */
  total: number;
  items: Item[];
}

/** What a list of values of attacks covers: the range if all its attacks are kept, otherwise whole hours. */
export interface Coverage {
  /** Number of attacks that have such a value, exact. */
  attacks: number;
  /** How exact the number of values is. `estimate`: the standard error is 2.3 %. `minimum`: there may be more. */
  distinct_is: 'exact' | 'estimate' | 'minimum';
  /** A value that is not kept has at most this many attacks. 0: all numbers are exact. */
  error: number;
  /** Start of what was counted, in milliseconds since the epoch. Later than the start of the query if older hours are no longer kept. */
  from: number;
  /** End of what was counted, exclusive. */
  to: number;
  /** Present if earlier hours of the query were left out because there was too much data for one list. */
  shortened?: true;
}

/** `total` is the number of different values. */
export interface TopAttacks<Item> extends Top<Item>, Coverage {}

/** The value has at least `num` attacks, and at most `num + error`. */
export interface BoundedCount extends KeyCount {
  error: number;
}

/** Where a source is, if the service has files of `--geoip`. */
export interface Location {
  /** Country code, like `DE`. */
  country?: string;
  /** Autonomous system, like `AS64500`. */
  network?: string;
  /** Its operator. */
  network_name?: string;
}

export interface NetworkCount extends BoundedCount {
  /** The operator of the network. */
  name: string;
}

export interface SourceCount extends Location {
  /** An address, or a network: IPv6 addresses count in their /64, like `2001:db8:1:2::/64`. */
  ip: string;
  /** The source has at least this many attacks, and at most `num + error`. */
  num: number;
  error: number;
}

/** `key` is the path, without the query. */
export interface UrlCount extends BoundedCount {
  /** The host name, empty for attacks without a registered host. */
  host: string;
  /** For the `hosts` of a query. */
  host_id: string | null;
}

/** `key` is the path, without the query. */
export interface PageCount extends Omit<UrlCount, 'host'> {
  /** The host name, empty for requests without a registered host. */
  host: string;
}

/** An item has at least `num` requests, and at most `num + error`. Covers whole hours. */
export interface ErrorPages extends Top<PageCount>, Omit<Coverage, 'attacks'> {
  /** Exact number of requests with this code and a path. */
  requests: number;
}

export type BandwidthKey = 'IN_BANDWIDTH' | 'OUT_BANDWIDTH' | 'BANDWIDTH';

export interface AttackSourceCount extends Coverage {
  /** Number of different sources. */
  sip: number;
}

export interface Classification {
  /** By host name. */
  domain: Top<DomainCount>;
  /** By category. */
  attack_type: Top<KeyCount<AttackType>>;
  /** By source address. */
  ip: TopAttacks<BoundedCount>;
  url: TopAttacks<UrlCount>;
  /** By country. */
  geo: TopAttacks<BoundedCount>;
}

export interface Situation {
  /** `no_data` comes before `attack`. */
  state: 'quiet' | 'attack' | 'no_data';
  /** The host name in it is the choice of clients: escape it before you display it. */
  sentence: string;
  /** When the attack or the silence began. Null if it is quiet, or if there was never any data. */
  since: number | null;
  /** The range of the bursts. `to` is the time of the situation. */
  from: number;
  to: number;
  /** Attacks in the last hour. */
  attacks: number;
  /** How many attacks this hour usually has. Null on the first day. */
  usual: { low: number; high: number } | null;
  /** In order of time, the latest 100. */
  bursts: Burst[];
  /** Log sources that usually send and have stopped, the latest first. */
  silent_sources: { name: string; last_seen: number }[];
}

/** `category`, `host` and `source` are null unless one value has at least half of the attacks. */
export interface Burst {
  from: number;
  to: number;
  /** The burst has not ended: `to` is that of the situation. */
  open: boolean;
  category: AttackType | null;
  host: string | null;
  host_id: string | null;
  /** An address; for IPv6 its /64 network. */
  source: string | null;
  attacks: number;
  blocked: number;
  /** Attacks divided by the usual number for this time. Null if that is 0. */
  times_usual: number | null;
}

export interface ThreatMap {
  threats: string[];
  /** The display name of each. */
  locale: Record<string, string>;
}

export interface List<Item> {
  /** Number of items on all pages. */
  total: number;
  items: Item[];
}

/** The promise is the first page; the iteration continues over all pages. */
export type Pages<Item> = Promise<List<Item>> & AsyncIterable<Item>;

/** A kept attack. Fields that the log does not have are absent. */
export interface AttackEvent {
  /** The ID of the request in its log, or one that identifies the event. */
  id: string;
  /** Milliseconds since the epoch. */
  time: number;
  attack: AttackType;
  action: AttackAction;
  /** Address of the client; for IPv6 its /64 network. */
  sip?: string;
  host?: string;
  host_id?: string;
  /** Path, without the query. */
  url?: string;
  /** The rule that decided the category, what it matched, and where in the request. */
  rule?: string;
  payload?: string;
  payload_location?: 'params' | 'uri' | 'body' | 'header';
  /** Method, and path with query. */
  request_line?: string;
  /** Response code, like `403`. */
  status?: string;
  /** Country code, like `DE`. */
  region?: string;
  method?: string;
  /** All matched rules, the one that decided the category first. */
  rules?: { id: string; variable?: string; value?: string; severity?: string }[];
  /** Anomaly score. */
  score?: number;
  user_agent?: string;
  /** Number of identical attacks, if there are several. */
  count?: number;
}

export interface EventList extends List<AttackEvent> {
  /** Number of attacks of the events on all pages: the sum of `count`. */
  matched_attacks: number;
  /** Exact number of attacks in the range, of these hosts and categories. Other filters do not apply. */
  attacks: number;
  /** Number of events that are kept of these attacks. */
  kept: number;
  /** How many of these attacks are kept. */
  kept_attacks: number;
  /** Whether all of these attacks are kept. */
  complete: boolean;
}

export interface DeletedEvents {
  deleted: number;
}

export interface Host {
  /** For the `hosts` of a query. */
  id: string;
  /** The same as `id`. */
  hostid: string;
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

/** When an alert opens an incident; `report`: when it sends a report. Times are in seconds. */
export type AlertRule =
  | {
      kind: 'threshold';
      attacks: number;
      within_s: number;
      category?: AttackType;
      host?: string;
      not_blocked?: boolean;
    }
  | { kind: 'spike'; sensitivity?: number; category?: AttackType; host?: string }
  | { kind: 'errors'; percent: number; within_s: number; host?: string }
  | { kind: 'dropped'; percent: number; within_s: number }
  | { kind: 'silent'; source: string; for_s: number }
  | { kind: 'report'; at: string; timezone?: string };

/** Messages go to a URL as JSON, or to a mail address. */
export type NewAlert = { name: string; rule: AlertRule } & ({ webhook: string } | { mail: string });

export interface Alert {
  id: string;
  name: string;
  rule: AlertRule;
  /** The rule in words. */
  text: string;
  channel: 'webhook' | 'mail';
  /** The mail address, or the origin of the webhook. */
  target: string;
  /** Milliseconds since the epoch. */
  created: number;
  /** Start of the open incident, null if there is none. */
  open_since: number | null;
}

/** The time from open to close of an alert. Names and values come from logs: escape them before you display them. */
export interface Incident {
  id: string;
  alert_id: string;
  alert: string;
  since: number;
  /** Null: the incident is open. */
  until: number | null;
  attacks: number | null;
  total: number | null;
  usual: number | null;
  percent: number | null;
  host: string | null;
  source: string | null;
  category: AttackType | null;
  rule: string | null;
  deliveries: {
    event: 'open' | 'closed' | 'report';
    status: 'waiting' | 'sending' | 'delivered' | 'failed';
    attempts: number;
    recorded: number;
    at: number;
    error?: string;
  }[];
}

export interface NewAnnotation {
  /** 1 to 200 characters. */
  text: string;
  /** Milliseconds since the epoch. @default now */
  time?: number | undefined;
  /** An `http` or `https` URL. */
  link?: string | undefined;
}

/** What happened at a time, such as a release: a line in the charts of the console. */
export interface Annotation {
  id: string;
  time: number;
  text: string;
  link: string | null;
}

const QUERY_TIMEOUT_MS = 60_000;
const INGEST_TIMEOUT_MS = 600_000;
const MAX_RETRIES = 3;
const HOSTS_PER_PAGE = 1_000;
const EVENTS_PER_PAGE = 100;
/** Clients choose the IDs of their requests: these are paths of other calls, or are resolved by `fetch`. */
const NO_PATHS_OF_EVENTS = ['timeline', 'dump', '.', '..'];
const DAY_MS = 86_400_000;
/** The longest range of the API. Events may be a day ahead of the clock. */
const RANGE_MS_MAX = 3_653 * DAY_MS;

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

  async function requestJson<T>(request: ApiRequest, form: Form<T>): Promise<T> {
    const response = await call(request, transport);
    const body = jsonOf(response);
    const fault = faultOf(body, form);
    if (fault !== undefined) {
      const message = `The response to ${response.source} ${fault}. Check the URL of the service.`;
      throw unexpected(response, message);
    }
    // The content of lists and fields is up to the API.
    return body as T;
  }

  function get<T>(path: string, form: Form<T>, parameters: Parameters, options: CallOptions): Promise<T> {
    return send('GET', path, form, parameters, options);
  }

  function send<T>(
    method: 'GET' | 'DELETE',
    path: string,
    form: Form<T>,
    parameters: Parameters,
    options: CallOptions,
  ): Promise<T> {
    return requestJson(
      {
        method,
        url: `${url}/v1/${project}${path}${queryString(parameters)}`,
        headers: { Accept: 'application/json' },
        isRepeatable: true,
        timeoutMs: options.timeoutMs ?? timeoutMs ?? QUERY_TIMEOUT_MS,
        signal: options.signal,
      },
      form,
    );
  }

  function post<T>(path: string, form: Form<T>, body: object, options: CallOptions): Promise<T> {
    return requestJson(
      {
        method: 'POST',
        url: `${url}/v1/${project}${path}`,
        headers: { Accept: 'application/json', 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        isRepeatable: false,
        timeoutMs: options.timeoutMs ?? timeoutMs ?? QUERY_TIMEOUT_MS,
        signal: options.signal,
      },
      form,
    );
  }

  /** The response has no body. */
  async function remove(path: string, options: CallOptions): Promise<void> {
    await call(
      {
        method: 'DELETE',
        url: `${url}/v1/${project}${path}`,
        headers: {},
        isRepeatable: true,
        timeoutMs: options.timeoutMs ?? timeoutMs ?? QUERY_TIMEOUT_MS,
        signal: options.signal,
      },
      transport,
    );
  }

  /** Async, so that an invalid query rejects. */
  async function statistics<T>(path: string, form: Form<T>, query: AnyStatisticsQuery): Promise<T> {
    return get(`/waf/${path}`, form, statisticsParameters(query), query);
  }

  /** Pages of hosts are numbered from 1. */
  function hostPages(path: string, query: HostsQuery = {}): Pages<Host> {
    const { page: firstPage = 1, limit = HOSTS_PER_PAGE, hostname } = query;
    const pageAt = (page: number) =>
      get<List<Host>>(path, ['total', 'items'], { page, pagesize: limit, hostname }, query);
    const first = pageAt(firstPage);
    return Object.assign(first, {
      async *[Symbol.asyncIterator]() {
        // A host that is registered meanwhile moves others to the next page, where they must not appear again.
        const seen = new Set<string>();
        let page = firstPage;
        for (let list = await first; ; list = await pageAt(++page)) {
          for (const host of list.items) {
            if (!seen.has(host.id)) yield host;
            seen.add(host.id);
          }
          if (list.items.length === 0 || page * limit >= list.total) return;
        }
      },
    });
  }

  function eventPages(query: EventsQuery): Promise<EventList> & AsyncIterable<AttackEvent> {
    const { from, to, recent, timezone, page: firstPage = 1, limit = EVENTS_PER_PAGE, sortDirection } = query;
    const pageAt = async (page: number) => {
      const range = { from, to, recent, timezone };
      const paging = { page, pagesize: limit, sort_direction: sortDirection };
      const parameters = { ...range, ...filterParameters(query), ...paging };
      return get<EventList>('/waf/event', ['total', 'items', 'attacks'], parameters, query);
    };
    const first = pageAt(firstPage);
    return Object.assign(first, {
      async *[Symbol.asyncIterator]() {
        let page = firstPage;
        for (let list = await first; ; list = await pageAt(++page)) {
          yield* list.items;
          if (list.items.length < limit) return;
        }
      },
    });
  }

  async function eventInList(id: string, options: CallOptions): Promise<List<AttackEvent>> {
    const to = timing.now() + DAY_MS;
    const { total, items } = await eventPages({
      ...options,
      ids: [id],
      from: Math.max(0, to - RANGE_MS_MAX),
      to,
      limit: 1_000,
    });
    if (total > 0) return { total, items };
    throw new WafstatError(`the project has no event with the ID '${id}', or no longer keeps it`, {
      status: 404,
      errorCode: 'WAF.4000',
    });
  }

  /** The path of log sources counts items to skip. */
  function sourcePages(query: ListQuery = {}): Pages<Source> {
    const { limit } = query;
    const pageAt = (offset: number | undefined) =>
      get<List<Source>>('/connections', ['total', 'items'], { offset, limit }, query);
    const first = pageAt(query.offset);
    return Object.assign(first, {
      async *[Symbol.asyncIterator]() {
        let offset = query.offset ?? 0;
        for (let list = await first; ; list = await pageAt(offset)) {
          yield* list.items;
          offset += list.items.length;
          if (list.items.length === 0 || offset >= list.total) return;
        }
      },
    });
  }

  return {
    timeline: (query) => statistics('event/timeline', ['requests', 'attacks'], query),
    attackTypes: (query) => statistics('event/attack/type', ATTACK_TYPES, query),
    attackCount: (query) => statistics('event/attack/num', ['attack_num'], query),
    attackedHosts: (query) => statistics('event/attack/domain', ['total', 'items'], query),
    attackSources: (query) => statistics('event/attack/source', TOP_ATTACKS, query),
    attackSourceCount: (query) => statistics('event/attack/source/num', ['sip'], query),
    requestPeak: (query) => statistics('event/request/peak', ['qps'], query),
    overviewTotals: (query) => statistics('overviews/statistics', 'list', query),
    overviewTimeline: (query) => statistics('overviews/request/timeline', 'list', query),
    qpsTimeline: (query) => statistics('overviews/qps/timeline', 'list', query),
    attackTimeline: (query) => statistics('overviews/attack/timeline', 'list', query),
    responseCodeTimeline: (query) => statistics('overviews/response-code/timeline', 'list', query),
    bandwidthTimeline: (query) => statistics('overviews/bandwidth/timeline', 'list', query),
    errorPages: (query) => statistics('overviews/abnormal', ['total', 'items', 'requests'], query),
    topDomains: (query) => statistics('overviews/attack/top-domains', ['total', 'items'], query),
    attackDistribution: (query) => statistics('overviews/attack/distribution', ['total', 'items'], query),
    attackActions: (query) => statistics('overviews/attack/action-types', ['total', 'items'], query),
    topIps: (query) => statistics('overviews/attack/ip', TOP_ATTACKS, query),
    topNetworks: (query) => statistics('overviews/attack/network', TOP_ATTACKS, query),
    topUrls: (query) => statistics('overviews/attack/url', TOP_ATTACKS, query),
    topRules: (query) => statistics('overviews/attack/rule', TOP_ATTACKS, query),
    topCountries: (query) => statistics('overviews/attack/country', TOP_ATTACKS, query),
    classification: (query) => statistics('overviews/classification', ['domain', 'attack_type'], query),
    situation: async (query = {}) => {
      const { from, to, timezone, hosts } = query;
      const parameters = { from, to, timezone, ...filterParameters({ hosts }) };
      return get('/waf/overviews/situation', ['state', 'sentence', 'bursts'], parameters, query);
    },
    threatMap: (options = {}) => get('/waf/tag/threat/map', ['threats', 'locale'], {}, options),
    threats: (options = {}) => get('/waf/map/threat', ['threats', 'locale'], {}, options),
    hosts: (query) => hostPages('/waf/instance', query),
    host: async (id, options = {}) =>
      get(`/waf/instance/${encodeURIComponent(id)}`, ['id', 'hostname'], {}, options),
    compositeHosts: (query) => hostPages('/composite-waf/host', query),
    premiumHosts: (query) => hostPages('/premium-waf/host', query),
    sources: sourcePages,
    events: eventPages,
    event: async (id, options = {}) =>
      NO_PATHS_OF_EVENTS.includes(id)
        ? eventInList(id, options)
        : get(`/waf/event/${encodeURIComponent(id)}`, ['total', 'items'], {}, options),
    tuning: async (query) => {
      const { threshold, idFrom } = query;
      const parameters = { ...statisticsParameters(query), threshold, id_from: idFrom };
      return get('/waf/tuning', ['total', 'items', 'blocking'], parameters, query);
    },
    deleteEvents: async (filter) =>
      send('DELETE', '/waf/event', ['deleted'], filterParameters(filter), filter),
    alerts: (options = {}) => get('/waf/alerts', ['total', 'items'], {}, options),
    addAlert: (alert, options = {}) => post('/waf/alerts', ['id', 'name'], alert, options),
    deleteAlert: (id, options = {}) => remove(`/waf/alerts/${encodeURIComponent(id)}`, options),
    incidents: (query = {}) => {
      const { offset, limit } = query;
      return get('/waf/alerts/incidents', ['total', 'items'], { offset, limit }, query);
    },
    annotations: (query = {}) => {
      const { from, to } = query;
      return get('/waf/annotations', ['total', 'items'], { from, to }, query);
    },
    addAnnotation: (annotation, options = {}) =>
      post('/waf/annotations', ['id', 'time', 'text'], annotation, options),
    deleteAnnotation: (id, options = {}) => remove(`/waf/annotations/${encodeURIComponent(id)}`, options),
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

/** What a response must be: a list, or an object with these fields. */
type Form<T> = T extends readonly unknown[] ? 'list' : readonly (keyof T & string)[];

const TOP_ATTACKS = ['total', 'items', 'attacks'] as const;

/** What is wrong with the response, if anything. */
function faultOf(body: unknown, form: 'list' | readonly string[]): string | undefined {
  if (body === undefined) return 'is not JSON';
  if (form === 'list') return Array.isArray(body) ? undefined : 'is not a list';
  const missing = form.find((name) => field(body, name) === undefined);
  return missing === undefined ? undefined : `has no field '${missing}'`;
}

type Parameters = Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>;

type AnyStatisticsQuery = TopAttacksQuery &
  Pick<QpsTimelineQuery, 'groupBy' | 'displayOption'> &
  Pick<ResponseCodesQuery, 'responseSource'> &
  Pick<ErrorPagesQuery, 'code'>;

function statisticsParameters(query: AnyStatisticsQuery): Parameters {
  const { from, to, timezone, recent, top, groupBy, displayOption, responseSource, code } = query;
  const { hosts, ...filter } = filterParameters(query);
  return {
    from,
    to,
    timezone,
    hosts,
    recent,
    top,
    ...filter,
    group_by: groupBy,
    display_option: displayOption,
    response_source: responseSource,
    code,
  };
}

/** The fields of a filter. `ipCountries` is the parameter `ip_countries`. */
const FILTER_FIELDS = [
  ...[
    'hosts',
    'domains',
    'ids',
    'nids',
    'attacks',
    'nattacks',
    'rules',
    'nrules',
    'sips',
    'nsips',
    'urls',
    'nurls',
  ],
  ...[
    'actions',
    'nactions',
    'ipCountries',
    'nipCountries',
    'responseCodes',
    'nresponseCodes',
    'methods',
    'nmethods',
  ],
  ...['sip', 'url', 'payload', 'domain', 'ndomain', 'queryMode'],
] as (keyof EventFilter)[];

function filterParameters(filter: EventFilter): Parameters {
  const parameters: Record<string, Parameters[string]> = {};
  for (const name of FILTER_FIELDS) {
    const value = filter[name];
    if (typeof value === 'object' && value.length === 0)
      throw new TypeError(`${name} is empty. Leave it out for no condition.`);
    parameters[name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return parameters;
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
