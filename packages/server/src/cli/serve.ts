/** `serve`: the service as a process, from its options to the listener and back. */
import cluster from 'node:cluster';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import type { Server } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import type { FastifyBaseLogger } from 'fastify';
import { openAuditFile } from '../audit/audit-file.ts';
import { newAuditEntry } from '../audit/audit-trail.ts';
import {
  DEFAULT_NAMES,
  IDENTITY_OPTIONS,
  type ListenAddress,
  type SERVER_OPTIONS,
  SERVICE_OPTIONS,
} from '../config.ts';
import { IdentityNotWritable, IdentityUnavailable, ServiceUserRejected } from '../identity/errors.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote-identity.ts';
import { generatePassword } from '../identity/secrets.ts';
import { FORMAT_NAMES } from '../ingest/reader.ts';
import type { Metrics, MetricsJson } from '../metrics/metrics.ts';
import type { ProjectLabels } from '../metrics/store-metrics.ts';
import { afterRunning } from '../running-time.ts';
import { retainFor } from '../store/retention.ts';
import { type Store, StoreMisconfigured, StoreNotWritable, StoreUnavailable } from '../store/store.ts';
import { alertSettings } from './alert-settings.ts';
import { command, type Io, printLine, UserError, VERSION } from './command.ts';
import { localActor } from './data-directory.ts';
import { initialise, printInitialised } from './init.ts';
import {
  hasInstallation,
  IDENTITY_PASSWORD_VARIABLE,
  type Location,
  remoteIdentity,
  whenAvailable,
  withInstallation,
  withStore,
} from './installation.ts';
import {
  addressOf,
  cannotListen,
  certificateOf,
  checkCanListen,
  metricsWarning,
  reloadCertificate,
} from './listeners.ts';
import { openGeoIp } from './open-geoip.ts';
import { flag, type Given, nameOf, option, type Source, type Values, withoutPassword } from './options.ts';
import { logFormatter } from './pretty-log.ts';
import { quoted, shownOptions } from './shown-options.ts';
import {
  othersHaveClosed,
  type PrimaryLog,
  primaryLog,
  printListening,
  reportReady,
  respondToScrapes,
  runWorkers,
} from './workers.ts';

/**
 * How much the heap may grow, in percent, before V8 collects what is old. By default, it may grow to several times its size.
 * After the whole benchmark, the service has 189 MB with this value instead of 241 MB, for the same processor time.
 */
const COLLECT_EARLY = '--heap-growing-percent=30';

/** Requests that take longer than this are cut off at shutdown. */
const STOP_MS_MAX = 5_000;
/** How often the data directory is checked. */
const CHECK_WRITES_EVERY_MS = 5_000;

type ServiceSource = Source<typeof SERVICE_OPTIONS>;
type ServerValues = Values<typeof SERVER_OPTIONS>;

interface Served {
  identity: Identity | RemoteIdentity;
  store: Store;
  /** The data directory, if it has the statistics. */
  directory?: string | null;
  metrics?: Metrics | null;
  /** The options of the service, for the commands that the console shows. */
  given: Given;
}

export const serveCommand = command({
  examples: [
    'wafstat serve --data ./data',
    'WAFSTAT_STORE=postgres WAFSTAT_POSTGRES_URL=postgres://wafstat@127.0.0.1/wafstat wafstat serve',
    'wafstat serve --data ./data --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem',
  ],
  options: {
    ...SERVICE_OPTIONS,
    check: option(
      '--check',
      'only check settings, files, ports and stores: print all problems and change nothing',
      flag,
    ),
  },
  check: (_values, source, io) => identityProblems(source, io),
  inspect: async (values, source, io) =>
    values.check ? (await (await import('./check.ts')).inspectService(values, source, io)).problems : [],
  async run({ workers, check = false, ...values }, _operands, io, source, given) {
    if (check) return (await import('./check.ts')).checkService({ ...values, workers }, source, io);
    const remote = remoteIdentity(values, io);
    if (!cluster.isPrimary || remote || (await whenAvailable(() => hasInstallation(values, io), io)))
      return run(() => {});
    const printCreated = await firstStart(values, io);
    try {
      return await run(printCreated);
    } finally {
      // Also if the service could not start: the password is not stored anywhere.
      printCreated();
    }

    /** `printCreated` comes last, so that nothing hides the password. */
    async function run(printCreated: () => void): Promise<number> {
      const announce = (address: string) => {
        // With a remote identity, there is no console.
        printListening(io, address, remote ? null : `${values.publicUrl ?? address}/console/`);
        printCreated();
      };
      if (cluster.isPrimary && workers > 1) return serveWithWorkers(workers, values, announce, io);
      const { data, ...server } = values;
      const directory = values.store === 'lmdb' && data !== undefined ? data : null;
      const metrics = values.metricsListen ? await openMetrics(values.store) : null;
      if (!remote) {
        return withInstallation(values, io, ({ identity, store, notices }) =>
          serve({ identity, store, directory, metrics, given }, server, io, notices, announce),
        );
      }
      const warning = await checkIdentityService(remote);
      const warnings = warning === null ? [] : [warning];
      return withStore(directory, io, values, (store) =>
        serve({ identity: remote, store, directory, metrics, given }, server, io, warnings, announce),
      );
    }
  },
});

function identityProblems(source: ServiceSource, { env }: Pick<Io, 'env'>): string[] {
  if (source('identityUrl') === undefined) {
    return (['identityUser', 'identityPasswordFile'] as const)
      .filter((name) => source(name) !== undefined)
      .map((name) => `${nameOf(IDENTITY_OPTIONS[name])} requires --identity-url`);
  }
  const problems: string[] = [];
  if (source('identityUser') === undefined) problems.push('--identity-url requires --identity-user');
  if (source('identityPasswordFile') === undefined && env[IDENTITY_PASSWORD_VARIABLE] === undefined) {
    problems.push(`--identity-url requires --identity-password-file or ${IDENTITY_PASSWORD_VARIABLE}`);
  }
  return problems;
}

/** Fails if the service rejects our credentials; resolves to a warning if it is unavailable, perhaps only for now. */
async function checkIdentityService(identity: RemoteIdentity): Promise<string | null> {
  try {
    await identity.check();
    return null;
  } catch (error) {
    if (error instanceof ServiceUserRejected) throw new UserError(error.message);
    if (error instanceof IdentityUnavailable) return error.message;
    throw error;
  }
}

/**
 * Checks what could keep the server from starting before it creates a password that is shown only once. Resolves to a function
 * that prints it, when it is called first.
 */
async function firstStart(
  values: ServerValues & Location & { initialPasswordFile?: string | undefined },
  io: Io,
): Promise<() => void> {
  certificateOf(values);
  await checkCanListen('--listen', values.listen);
  if (values.healthListen) await checkCanListen('--health-listen', values.healthListen);
  if (values.metricsListen) await checkCanListen('--metrics-listen', values.metricsListen);
  const { initialPasswordFile: path } = values;
  // Written first, so that the password cannot be lost.
  const password = path === undefined ? undefined : writePasswordFile(path);
  const created = await initialise(values, DEFAULT_NAMES, password, io).catch((error) => {
    // If the outcome is unknown, the installation may exist with this password.
    if (path !== undefined && !(error instanceof IdentityNotWritable && error.outcomeUnknown))
      rmSync(path, { force: true });
    throw error;
  });
  // Null if another process was faster: that one prints the password.
  if (created === null) {
    if (path !== undefined) rmSync(path, { force: true });
    return () => {};
  }
  let isPrinted = false;
  return () => {
    if (isPrinted) return;
    isPrinted = true;
    printInitialised(io, created);
    if (path !== undefined) printLine(io.stdout, `password in ${path}: change it and delete the file`);
  };
}

/** Returns a new password. In a new file, because others could read an existing one, or have put a link there. */
function writePasswordFile(path: string): string {
  const password = generatePassword();
  try {
    writeFileSync(path, `${password}\n`, { flag: 'wx', mode: 0o600, flush: true });
    return password;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
      rmSync(path, { force: true });
      throw error;
    }
    throw new UserError(`--initial-password-file ${path} already exists: delete it, or choose another name`);
  }
}

/** Resolves to the exit status after a stop. */
async function serve(
  opened: Served,
  values: ServerValues,
  io: Io,
  warnings: readonly string[],
  announce: (address: string) => void,
) {
  const trouble = await storeWarning(opened.store);
  const served = opened.metrics ? { ...opened, store: opened.metrics.measured(opened.store) } : opened;
  const server = await startServer(served, values, io);
  for (const warning of trouble === null ? warnings : [...warnings, trouble]) server.log.warn(warning);
  if (cluster.worker === undefined || cluster.worker.id === 1)
    await recordStart(served, values, server.log, io);
  const kept = {
    eventsMs: values.retention,
    topListsMs: values.detailsRetention,
    location: shownOptions(opened.given).options.map(quoted).join(' '),
  };
  const retention = retainFor(served.store, kept, io.now, server.log);
  watchWrites(opened, server.log, io.stop);
  // On a terminal, what is announced follows what was logged before.
  if (io.stderr.isTTY) await (await io.openLog?.(cluster.isWorker))?.flush();
  if (cluster.worker) reportReady(server.address);
  else announce(server.address);
  // Not before: V8 accepts compiled code only with the flags that it was compiled with.
  setFlagsFromString(COLLECT_EARLY);
  await whenAborted(io.stop);
  // Concurrently: a prune may be waiting for the write lock.
  await Promise.all([retention.stop(), server.close()]);
  if (served.identity.kind === 'remote') served.identity.close();
  return 0;
}

/** Null with Keystone: alerts are records of the local identity. */
async function serveAlerts(
  { identity, store }: Served,
  values: ServerValues,
  log: FastifyBaseLogger,
  io: Io,
) {
  if (identity.kind === 'remote') return null;
  // Loaded on demand, like the application.
  const { startAlerts } = await import('../alerts/alerts.ts');
  return startAlerts({ store, identity, settings: alertSettings(values, io), now: io.now, log });
}

/**
 * Logs when the data directory cannot be written any more, for example because a file of it was replaced, and when it can
 * again: without requests, nothing else would notice. Costs a few `stat` calls each time.
 */
function watchWrites(
  { store, identity, directory = null }: Served,
  log: FastifyBaseLogger,
  stop: AbortSignal,
): void {
  if (directory === null) return;
  let logged: string | null = null;
  let isChecking = false;
  const check = async () => {
    if (isChecking) return;
    isChecking = true;
    const trouble = await writeTrouble(store, identity);
    isChecking = false;
    if (stop.aborted) return;
    if (trouble === null && logged !== null) log.info('the data directory can be written again');
    if (trouble !== null && trouble.reason !== logged) log.error(trouble.message);
    logged = trouble?.reason ?? null;
  };
  const timer = setInterval(() => void check(), CHECK_WRITES_EVERY_MS).unref();
  stop.addEventListener('abort', () => clearInterval(timer), { once: true });
}

/** Messages contain figures, which differ each time; reasons do not. */
async function writeTrouble(store: Store, identity: Served['identity']) {
  try {
    await store.check('appends');
    if (identity.kind === 'local') await identity.checkWrites();
    return null;
  } catch (error) {
    const { message } = error as Error;
    const isKnown = error instanceof StoreNotWritable || error instanceof IdentityNotWritable;
    return { message, reason: isKnown ? error.trouble : message };
  }
}

/** An unavailable store may come back; a misconfigured one must be fixed first. */
async function storeWarning(store: Store): Promise<string | null> {
  try {
    await store.check('queries');
    return null;
  } catch (error) {
    if (!(error instanceof StoreUnavailable) || error instanceof StoreMisconfigured) throw error;
    return `${error.message}; retrying`;
  }
}

/** The audit trail records the options of each start. A full disk must not keep the service from starting. */
async function recordStart(
  { identity, directory = null }: Served,
  values: ServerValues,
  log: FastifyBaseLogger,
  io: Io,
): Promise<void> {
  const trail = identity.kind === 'local' ? identity.audit : openAuditFile(directory, io.now);
  if (identity.kind === 'remote') trail.mirror((record) => log.info({ audit: record }, 'audit'));
  const { listen, healthListen, metricsListen, categories } = values;
  const shown = Object.entries({
    ...values,
    listen: `${listen.host}:${listen.port}`,
    healthListen: healthListen && `${healthListen.host}:${healthListen.port}`,
    metricsListen: metricsListen && `${metricsListen.host}:${metricsListen.port}`,
    categories: categories && [...categories].map(([rule, category]) => `${rule}=${category ?? 'none'}`),
  })
    .filter(([, value]) => typeof value !== 'object' || Array.isArray(value))
    .map(([name, value]) => [name, typeof value === 'string' ? withoutPassword(value) : value] as const);
  const after = Object.fromEntries(shown);
  await trail.note(newAuditEntry(localActor(), 'service.start', { type: 'service' }, { after }));
}

/** Resolves when the server accepts connections. */
export async function startServer(served: Served, values: ServerValues, io: Io) {
  const { identity, store, metrics, given } = served;
  const { listen, healthListen } = values;
  const certificate = certificateOf(values);
  const geo = await openGeoIp(values.geoip);
  const log = logFormatter(values.logFormat, io);
  // Loaded here: loading takes longer than most other commands run.
  const { createApp } = await import('../http/app.ts');
  const { createHealthServer, drain } = await import('../http/connections.ts');
  const app = await createApp({
    store,
    identity,
    now: io.now,
    catalog: { publicUrl: values.publicUrl ?? null, region: values.region },
    bodyBytesMax: values.bodyLimit,
    cacheBytes: values.cache,
    rateLimit: values.rateLimit,
    basicReads: values.basicReads === 'on',
    eventsRole: values.eventsRole,
    alertAllowPrivate: values.alertAllowPrivate ?? false,
    corsOrigins: values.corsOrigin,
    limits: {
      retentionMs: values.retention,
      hostsMax: values.hostsMax,
      sourcesMax: values.sourcesMax,
      attackSources: values.attackSources,
      attackQueries: values.attackQueries,
      attackValues: values.attackValues,
      geo,
    },
    maxConnections: values.maxConnections,
    trustProxy: values.trustProxy,
    overrides: values.categories,
    topListsMs: Math.min(values.detailsRetention, values.retention),
    installed: { program: io.program ?? 'wafstat', ...shownOptions(given) },
    logger: {
      level: values.logLevel,
      stream: (await io.openLog?.(cluster.isWorker)) ?? io.stderr,
      // Names in log lines come from requests.
      hooks: { streamWrite: log.format },
    },
    logsResponses: !log.isPretty,
    onResponse: metrics?.onResponse,
    tls: certificate?.read(),
  });
  await app.listen(listen).catch((error) => cannotListen('--listen', listen, error));
  const health = healthListen ? createHealthServer(app) : null;
  if (health && healthListen) {
    await once(health.listen(healthListen), 'listening').catch(async (error) => {
      await app.close();
      cannotListen('--health-listen', healthListen, error);
    });
  }
  const metricsServer = await serveMetrics(served, values, app.log, io).catch(async (error) => {
    await app.close();
    health?.close();
    throw error;
  });
  const alerts = await serveAlerts(served, values, app.log, io);
  const stopReloading = certificate ? reloadCertificate(app.server, certificate, app.log) : () => {};
  const stopWatching = geo?.watch(app.log);
  return {
    address: addressOf(app.server, listen.host, certificate !== null),
    log: app.log,
    /** Finishes requests in progress; closes connections that are slower than STOP_MS_MAX, or idle. */
    async close() {
      stopReloading();
      stopWatching?.();
      await drain(app, values.drainDelay * 1_000, cluster.worker ? othersHaveClosed : undefined);
      const deadline = afterRunning(STOP_MS_MAX, () => app.server.closeAllConnections());
      await Promise.all([app.close(), alerts?.stop()]);
      deadline.stop();
      // Last, so that probes see a service that is shutting down, not a missing one.
      for (const other of [health, metricsServer]) {
        other?.close();
        other?.closeAllConnections();
      }
    },
  };
}

/** Must be called before the store is opened: metrics learn of caches when they are created. */
async function openMetrics(store: string): Promise<Metrics> {
  const { createMetrics } = await import('../metrics/metrics.ts');
  return createMetrics({ version: VERSION, store });
}

/** Serves the metrics of this process. Workers leave that to the primary. */
async function serveMetrics(
  { identity, store, directory = null, metrics = null }: Served,
  { metricsListen, metricsHosts, retention }: ServerValues,
  log: PrimaryLog,
  { now }: Io,
): Promise<Server | null> {
  if (metrics === null || metricsListen === undefined) return null;
  const { createStoreMetrics } = await import('../metrics/store-metrics.ts');
  const { collectMetrics } = await import('../metrics/listener.ts');
  const readStore = createStoreMetrics({
    store,
    metrics,
    labelsOf: (project) => labelsOf(identity, project),
    formats: FORMAT_NAMES,
    hostsMax: metricsHosts,
    retentionMs: retention,
    directory,
    now,
  });
  const collect = (includesStore: boolean) => collectMetrics(metrics, includesStore ? readStore : null);
  // Counts start here, not with the first scrape. Workers that read the store later start when they do.
  if (cluster.worker === undefined || cluster.worker.id === 1) void readStore();
  if (cluster.worker) {
    respondToScrapes(collect);
    return null;
  }
  return listenForMetrics(metricsListen, async () => [await collect(true)], log);
}

function labelsOf(identity: Identity | RemoteIdentity, id: string): ProjectLabels | null {
  if (identity.kind === 'remote') return { domain: '', project: id };
  const project = identity.lookup.project(id);
  if (project === undefined) return null;
  return { domain: identity.lookup.domain(project.domain_id)?.name ?? '', project: project.name };
}

async function serveWithWorkers(
  count: number,
  { drainDelay, metricsListen, logFormat }: ServerValues,
  announce: (address: string) => void,
  io: Io,
): Promise<number> {
  const log = primaryLog(logFormat, io);
  const options = { count, drainDelayMs: drainDelay * 1_000, announce, warn: log.warn };
  if (metricsListen === undefined) return runWorkers({ ...options, metrics: null }, io);
  const { WorkerMetrics } = await import('../metrics/listener.ts');
  const metrics = new WorkerMetrics();
  const server = await listenForMetrics(metricsListen, () => metrics.collect(), log);
  const status = await runWorkers({ ...options, metrics }, io);
  server.close();
  server.closeAllConnections();
  return status;
}

async function listenForMetrics(
  address: ListenAddress,
  collect: () => Promise<readonly MetricsJson[]>,
  log: PrimaryLog,
): Promise<Server> {
  const { createMetricsServer } = await import('../metrics/listener.ts');
  const server = createMetricsServer(collect);
  await once(server.listen({ ...address, exclusive: true }), 'listening').catch((error) =>
    cannotListen('--metrics-listen', address, error),
  );
  log.info(`metrics are at ${addressOf(server, address.host, false)}/metrics`);
  const warning = metricsWarning(address);
  if (warning !== null) log.warn(warning);
  return server;
}

export async function whenAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
