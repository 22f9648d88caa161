/** The metrics of one process. METRICS is the table: docs/metrics.md is generated from it. */
import { versions } from 'node:process';
import type { FastifyReply, FastifyRequest } from 'fastify';
import {
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  type MetricObjectWithValues,
  type MetricValue,
  Registry,
} from 'prom-client';
import { CACHES } from '../cache.ts';
import {
  cacheCreated,
  loginRefused,
  type NamedCache,
  queryAdmitted,
  requestShed,
  SHED_REASONS,
} from '../diagnostics.ts';
import { CATEGORIES, CODE_CLASSES, DROP_REASONS } from '../event.ts';
import type { Batch, Store } from '../store/store.ts';

/** What a scrape returns, before it becomes text. */
export type MetricsJson = MetricObjectWithValues<MetricValue<string>>[];

export interface MetricDescription {
  type: 'counter' | 'gauge' | 'histogram';
  help: string;
  /** Each label with its values. */
  labels?: Readonly<Record<string, string>>;
  buckets?: readonly number[];
}

/** Cached responses take less than a millisecond, queries over many hosts a few seconds. */
const DURATION_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Most queries that wait longer than 0.5 s are shed, those of a single dashboard after 10 s. */
const QUEUE_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1, 2.5, 5, 10];

const PROJECT = {
  domain: 'the name of the domain; empty if users and projects are in Keystone',
  project: 'the name of the project; its ID if users and projects are in Keystone',
};
const FORMAT = 'a log format; `auto`: none recognized; `mixed`: several from one source';

/** Why a login was refused. Other reasons count as `other`. */
const LOGIN_REASONS = {
  wrong_credentials: 'unknown user or wrong password',
  wrong_secret: 'wrong secret of an access key (HTTP Basic)',
  unknown_key: 'unknown access key (HTTP Basic)',
  throttled: 'too many failed logins before',
  user_disabled: 'the user is disabled',
  other: 'everything else, such as an invalid token or scope',
} as const;
type LoginReason = keyof typeof LOGIN_REASONS;

const list = (names: Iterable<string>) => [...names].map((name) => `\`${name}\``).join(', ');
const explained = (names: Readonly<Record<string, string>>) =>
  Object.entries(names)
    .map(([name, meaning]) => `\`${name}\`: ${meaning}`)
    .join('; ');

const CATEGORY = list(CATEGORIES);
const HOST = 'a host name';
const CACHE = explained(CACHES);

export const TRAFFIC_DIRECTIONS = ['in', 'out'] as const;

export const METRICS = {
  wafstat_build_info: {
    type: 'gauge',
    help: 'Always 1. The labels describe the running build.',
    labels: {
      version: 'the version of wafstat',
      node_version: 'the version of Node.js',
      store: '`lmdb` or `postgres`',
    },
  },
  wafstat_requests_total: {
    type: 'counter',
    help: 'Requests in the logs, counted by any process since the service started.',
    labels: PROJECT,
  },
  wafstat_attacks_total: {
    type: 'counter',
    help: 'Attacks in the logs, counted by any process since the service started.',
    labels: { ...PROJECT, category: CATEGORY },
  },
  wafstat_blocked_attacks_total: {
    type: 'counter',
    help: 'Attacks that the log reports as blocked, counted by any process since the service started.',
    labels: { ...PROJECT, category: CATEGORY },
  },
  wafstat_responses_total: {
    type: 'counter',
    help: 'Requests in the logs by class of the response code, counted by any process since the service started.',
    labels: { ...PROJECT, code: list(CODE_CLASSES) },
  },
  wafstat_traffic_bytes_total: {
    type: 'counter',
    help: 'Bytes that clients sent (in) and got (out), as the logs report them, counted by any process since the service started.',
    labels: { ...PROJECT, direction: list(TRAFFIC_DIRECTIONS) },
  },
  wafstat_host_requests_total: {
    type: 'counter',
    help: 'Requests by host, only with --metrics-hosts.',
    labels: { ...PROJECT, host: HOST },
  },
  wafstat_host_attacks_total: {
    type: 'counter',
    help: 'Attacks by host, only with --metrics-hosts.',
    labels: { ...PROJECT, host: HOST },
  },
  wafstat_ingest_records_total: {
    type: 'counter',
    help: 'Log records that were counted, by any process since the service started.',
    labels: { ...PROJECT, format: FORMAT },
  },
  wafstat_ingest_dropped_records_total: {
    type: 'counter',
    help: 'Log records that were dropped, by any process since the service started.',
    labels: { ...PROJECT, format: FORMAT, reason: list(Object.keys(DROP_REASONS)) },
  },
  wafstat_source_last_event_timestamp_seconds: {
    type: 'gauge',
    help: 'Time of the newest event of a source, by the clock in the log.',
    labels: { ...PROJECT, source: 'the name of a source' },
  },
  wafstat_metrics_omitted: {
    type: 'gauge',
    help: 'Projects, sources and hosts without metrics, because there are more than the limit.',
    labels: { kind: '`project`, `source` or `host`' },
  },
  wafstat_store_read_failures_total: {
    type: 'counter',
    help: 'Scrapes that show older counts, because the store could not be read.',
  },
  wafstat_store_commit_duration_seconds: {
    type: 'histogram',
    help: 'Time until a batch of this service was durable. Batches of wafstat ingest and wafstat follow are not included.',
    buckets: DURATION_BUCKETS,
  },
  wafstat_store_commit_failures_total: {
    type: 'counter',
    help: 'Batches of this service that the store failed to count.',
  },
  wafstat_store_writable: {
    type: 'gauge',
    help: 'Whether the store accepts changes (1) or not (0), for example because the disk is full.',
  },
  wafstat_store_file_bytes: {
    type: 'gauge',
    help: 'Size of a file in the data directory.',
    labels: { file: '`statistics`, `identity`' },
  },
  wafstat_filesystem_free_bytes: {
    type: 'gauge',
    help: 'Free space in the file system of the data directory.',
  },
  wafstat_filesystem_size_bytes: {
    type: 'gauge',
    help: 'Size of the file system of the data directory.',
  },
  wafstat_http_request_duration_seconds: {
    type: 'histogram',
    help: 'Time from the headers of an HTTP request to the end of its response.',
    labels: {
      method: 'a method that the route has; `other` without a route',
      route: 'the pattern of a route, such as `/v1/:project_id/waf/event/timeline`; `none` without one',
      status: 'the status code',
    },
    buckets: DURATION_BUCKETS,
  },
  wafstat_query_queue_duration_seconds: {
    type: 'histogram',
    help: 'Time that a statistics query waited for its turn. Cached responses do not wait.',
    buckets: QUEUE_BUCKETS,
  },
  wafstat_shed_requests_total: {
    type: 'counter',
    help: 'Requests and connections that were refused to protect the service.',
    labels: { reason: explained(SHED_REASONS) },
  },
  wafstat_failed_logins_total: {
    type: 'counter',
    help: 'Refused logins with a password, a token, or an access key as HTTP Basic credentials.',
    labels: { reason: explained(LOGIN_REASONS) },
  },
  wafstat_cache_hits_total: {
    type: 'counter',
    help: 'Cache lookups that found an entry.',
    labels: { cache: CACHE },
  },
  wafstat_cache_misses_total: {
    type: 'counter',
    help: 'Cache lookups that found no entry.',
    labels: { cache: CACHE },
  },
  wafstat_cache_entries: {
    type: 'gauge',
    help: 'Entries of a cache.',
    labels: { cache: CACHE },
  },
  wafstat_cache_bytes: {
    type: 'gauge',
    help: 'Estimated size of a cache.',
    labels: { cache: CACHE },
  },
} as const satisfies Readonly<Record<string, MetricDescription>>;

type MetricName = keyof typeof METRICS;
type NamesOf<T> = { [N in MetricName]: (typeof METRICS)[N]['type'] extends T ? N : never }[MetricName];

export type Metrics = ReturnType<typeof createMetrics>;

/** Create it before the store and the identity: it learns of caches when they are created. */
export function createMetrics(build: { version: string; store: string }) {
  const registry = new Registry();
  collectProcessMetrics(registry);
  const instruments = Object.entries(METRICS).map(([name, { type, help, ...more }]) => {
    const { labels = {}, buckets = [] }: Partial<MetricDescription> = more;
    const options = { name, help, labelNames: Object.keys(labels), registers: [registry] };
    if (type === 'counter') return [name, new Counter(options)] as const;
    if (type === 'histogram') return [name, new Histogram({ ...options, buckets: [...buckets] })] as const;
    // All workers have the same versions; the other gauges are those of one worker, or add up.
    const aggregator = name === 'wafstat_build_info' ? 'first' : 'sum';
    return [name, new Gauge({ ...options, aggregator })] as const;
  });
  const byName = new Map<string, Counter | Gauge | Histogram>(instruments);
  // The table says which type a name has.
  const counter = (name: NamesOf<'counter'>) => byName.get(name) as Counter;
  const gauge = (name: NamesOf<'gauge'>) => byName.get(name) as Gauge;
  const histogram = (name: NamesOf<'histogram'>) => byName.get(name) as Histogram;

  gauge('wafstat_build_info').set({ ...build, node_version: versions.node }, 1);
  const shed = counter('wafstat_shed_requests_total');
  const logins = counter('wafstat_failed_logins_total');
  const queue = histogram('wafstat_query_queue_duration_seconds');
  const http = histogram('wafstat_http_request_duration_seconds');
  // Counters start at zero, so that rates include the first increase.
  for (const reason of Object.keys(SHED_REASONS)) shed.inc({ reason }, 0);
  for (const reason of Object.keys(LOGIN_REASONS)) logins.inc({ reason }, 0);

  const caches: NamedCache[] = [];
  const subscriptions = [
    cacheCreated.subscribe((cache) => caches.push(cache)),
    queryAdmitted.subscribe((ms) => queue.observe(ms / 1_000)),
    requestShed.subscribe((reason) => shed.inc({ reason })),
    loginRefused.subscribe((reason) => logins.inc({ reason: isLoginReason(reason) ? reason : 'other' })),
  ];

  function collectCaches(): void {
    for (const name of CACHE_METRICS) byName.get(name)?.reset();
    for (const { name: cache, hits, misses, size, bytes } of caches) {
      counter('wafstat_cache_hits_total').inc({ cache }, hits);
      counter('wafstat_cache_misses_total').inc({ cache }, misses);
      gauge('wafstat_cache_entries').inc({ cache }, size);
      gauge('wafstat_cache_bytes').inc({ cache }, bytes);
    }
  }

  return {
    counter,
    gauge,
    registry,

    /** A hook for the end of each response. Takes 0.7 us. */
    onResponse(request: FastifyRequest, reply: FastifyReply): void {
      const { url } = request.routeOptions;
      const isKnown = url !== undefined && !request.is404;
      const method = isKnown ? request.method : 'other';
      const route = isKnown ? url : 'none';
      http.observe({ method, route, status: reply.statusCode }, reply.elapsedTime / 1_000);
    },

    /** The store, with its appends measured. */
    measured(store: Store): Store {
      const duration = histogram('wafstat_store_commit_duration_seconds');
      const failures = counter('wafstat_store_commit_failures_total');
      return {
        ...store,
        async append(batch: Batch) {
          const start = performance.now();
          try {
            const appended = await store.append(batch);
            duration.observe((performance.now() - start) / 1_000);
            return appended;
          } catch (error) {
            failures.inc();
            throw error;
          }
        },
      };
    },

    async json(): Promise<MetricsJson> {
      collectCaches();
      return registry.getMetricsAsJSON();
    },

    close(): void {
      for (const unsubscribe of subscriptions) unsubscribe();
    },
  };
}

const CACHE_METRICS = [
  'wafstat_cache_hits_total',
  'wafstat_cache_misses_total',
  'wafstat_cache_entries',
  'wafstat_cache_bytes',
] as const satisfies MetricName[];

function isLoginReason(reason: string): reason is LoginReason {
  return Object.hasOwn(LOGIN_REASONS, reason);
}

/** The usual metrics of a process, except those whose names break the conventions of Prometheus. */
export function collectProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray()) {
    if (!PROCESS_METRICS.includes(name)) registry.removeSingleMetric(name);
  }
  const start = new Gauge({
    name: 'process_start_time_seconds',
    help: 'Start time of the process since the epoch.',
    // If there are several workers, the primary is the oldest.
    aggregator: 'min',
    registers: [registry],
  });
  start.set(performance.timeOrigin / 1_000);
}

const PROCESS_METRICS: readonly string[] = [
  'process_cpu_user_seconds_total',
  'process_cpu_system_seconds_total',
  'process_cpu_seconds_total',
  'process_resident_memory_bytes',
  'process_open_fds',
  'process_max_fds',
  'nodejs_eventloop_lag_seconds',
  'nodejs_eventloop_lag_mean_seconds',
  'nodejs_eventloop_lag_max_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_heap_size_total_bytes',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_gc_duration_seconds',
];
