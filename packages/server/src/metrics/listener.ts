/** `GET /metrics`, for one process or for several workers. */
import { createServer, type Server } from 'node:http';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { AggregatorRegistry, Registry } from 'prom-client';
import { serveInTurn } from '../pipelining.ts';
import { collectProcessMetrics, type Metrics, type MetricsJson } from './metrics.ts';

const TIMEOUT_MS = 5_000;
/** Less than the timeout of a scrape, which is 10 s by default; more than `STORE_MS_MAX`. */
const WORKER_MS_MAX = 8_000;
/** A scrape does not wait longer for the store; the next one has the result. */
const STORE_MS_MAX = 5_000;
const CONNECTIONS_MAX = 100;
/** Series written per event-loop turn: some 10 ms. */
const SLICE_SERIES = 1_000;

/** `collect` resolves to the metrics of each process. */
export function createMetricsServer(collect: () => Promise<readonly MetricsJson[]>): Server {
  const server = createServer({ requestTimeout: TIMEOUT_MS, headersTimeout: TIMEOUT_MS });
  // Concurrent scrapes share one text.
  let scrape: Promise<Buffer> | null = null;
  serveInTurn(server, async ({ method, url }, response) => {
    if (url?.split('?', 1)[0] !== '/metrics') {
      response.writeHead(404, { Connection: 'close' }).end('metrics are at /metrics\n');
    } else if (method !== 'GET') {
      response.writeHead(405, { Allow: 'GET', Connection: 'close' }).end();
    } else {
      try {
        scrape ??= collect()
          .then(metricsText)
          .finally(() => {
            scrape = null;
          });
        const text = await scrape;
        response.writeHead(200, { 'Content-Type': Registry.PROMETHEUS_CONTENT_TYPE }).end(text);
      } catch (error) {
        response.writeHead(500, { Connection: 'close' }).end(`${(error as Error).message}\n`);
      }
    }
  });
  server.maxConnections = CONNECTIONS_MAX;
  return server;
}

/**
 * The text of a scrape, written in slices: with 1,000 projects it has 29,000 series, which take 400 ms. Series that several
 * processes have are added up.
 */
export async function metricsText(processes: readonly MetricsJson[]): Promise<Buffer> {
  const families = new Map<string, MetricsJson>();
  for (const metric of processes.flat())
    families.set(metric.name, [...(families.get(metric.name) ?? []), metric]);
  const texts: string[] = [];
  for (const family of families.values()) {
    const parts: string[] = [];
    for (const slice of await slicesOf(family)) {
      const text = (await AggregatorRegistry.aggregate(slice.map((metric) => [metric])).metrics()).trimEnd();
      // The first slice has the lines HELP and TYPE.
      parts.push(parts.length === 0 ? text : text.split('\n').slice(2).join('\n'));
      await setImmediate();
    }
    texts.push(parts.join('\n'));
  }
  return Buffer.from(`${texts.join('\n\n')}\n`);
}

/** Divides a metric of several processes, so that the values of a series are in the same slice. */
async function slicesOf(family: MetricsJson): Promise<MetricsJson[]> {
  // The series of a histogram belong together; those of ours are few.
  if (family.some(({ type }) => isHistogram(type))) return [family];
  const empty = () => family.map((metric): MetricsJson[number] => ({ ...metric, values: [] }));
  const slices = [empty()];
  const places = new Map<string, number>();
  let visited = 0;
  for (const [i, { values }] of family.entries()) {
    for (const value of values) {
      if (++visited % SLICE_SERIES === 0) await setImmediate();
      const series = JSON.stringify(Object.entries(value.labels).sort());
      const place = places.get(series) ?? places.size;
      places.set(series, place);
      const at = Math.floor(place / SLICE_SERIES);
      slices[at] ??= empty();
      slices[at][i]?.values.push(value);
    }
  }
  return slices;
}

/** The metrics of this process. `readStore` updates those that come from the store. */
export async function collectMetrics(
  metrics: Metrics,
  readStore: (() => Promise<void>) | null,
): Promise<MetricsJson> {
  if (readStore !== null) {
    const late = new AbortController();
    await Promise.race([readStore(), sleep(STORE_MS_MAX, undefined, { ref: false, signal: late.signal })]);
    late.abort();
  }
  return metrics.json();
}

/** What the primary needs from a worker process. */
interface ScrapedWorker {
  id: number;
  isConnected(): boolean;
  /** Asks for its metrics, with or without those of the store. */
  request(includesStore: boolean): void;
}

/**
 * Keeps the latest metrics of each worker. The counts of workers that have ended stay in the sums: if a counter
 * decreased, Prometheus would take its whole value as an increase.
 */
export class WorkerMetrics {
  readonly #workers = new Map<number, ScrapedWorker>();
  readonly #latest = new Map<number, MetricsJson>();
  readonly #ended: MetricsJson[] = [];
  readonly #primary = new Registry();
  #reader: number | null = null;
  #scrape: Promise<MetricsJson[]> | null = null;
  readonly #missing = new Set<number>();
  #onComplete: () => void = () => {};

  constructor() {
    collectProcessMetrics(this.#primary);
  }

  add(worker: ScrapedWorker): void {
    this.#workers.set(worker.id, worker);
  }

  receive(worker: number, metrics: MetricsJson): void {
    this.#latest.set(worker, metrics);
    this.#complete(worker);
  }

  remove(worker: number): void {
    const latest = this.#latest.get(worker);
    this.#workers.delete(worker);
    this.#latest.delete(worker);
    if (latest !== undefined) this.#ended.push(latest.filter(({ type }) => isCount(type)));
    this.#complete(worker);
  }

  /** Concurrent scrapes share one request. If a worker does not respond in time, its latest metrics are used. */
  collect(): Promise<MetricsJson[]> {
    this.#scrape ??= this.#request().finally(() => {
      this.#scrape = null;
    });
    return this.#scrape;
  }

  async #request(): Promise<MetricsJson[]> {
    const workers = [...this.#workers.values()].filter((worker) => worker.isConnected());
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, WORKER_MS_MAX);
      this.#onComplete = () => {
        clearTimeout(timer);
        resolve();
      };
      for (const { id } of workers) this.#missing.add(id);
      // One worker reads the store, the same one as long as it runs: if others did too, the sums would be too large.
      if (!workers.some(({ id }) => id === this.#reader))
        this.#reader = Math.min(...workers.map(({ id }) => id));
      for (const worker of workers) worker.request(worker.id === this.#reader);
      if (workers.length === 0) this.#onComplete();
    });
    this.#missing.clear();
    const primary = await this.#primary.getMetricsAsJSON();
    if (this.#ended.length > 1) {
      const ended = this.#ended.splice(0);
      // A worker that crashes again and again must not fill the memory.
      this.#ended.unshift(await AggregatorRegistry.aggregate(ended).getMetricsAsJSON());
    }
    return [...this.#latest.values(), ...this.#ended, primary];
  }

  #complete(worker: number): void {
    if (this.#missing.delete(worker) && this.#missing.size === 0) this.#onComplete();
  }
}

/** Types are names in JSON, contrary to the published types. */
function isHistogram(type: unknown): boolean {
  return type === 'histogram';
}

function isCount(type: unknown): boolean {
  return type === 'counter' || type === 'histogram';
}
