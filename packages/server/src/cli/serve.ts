import cluster from 'node:cluster';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import { createSecureContext } from 'node:tls';
import type { FastifyBaseLogger } from 'fastify';
import { createAuditTrail, newAuditId } from '../audit/audit-trail.ts';
import {
  type Address,
  type Origin,
  type SettingName,
  type Settings,
  SettingsError,
  withoutPassword,
} from '../config.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote.ts';
import { printable } from '../printable.ts';
import { retainFor } from '../store/retention.ts';
import { type Store, StoreMisconfigured, StoreUnavailable } from '../store/store.ts';
import { command, type Io, UserError } from './command.ts';
import { FOLDER_REQUIRED, isInitialised, localActor, withInstallation, withStore } from './data-folder.ts';
import { firstCheck, IDENTITY_SETTINGS, identityProblems, remoteIdentity } from './identity-elsewhere.ts';
import { initialise, printMade } from './init.ts';
import { STORE_SETTINGS } from './store.ts';
import { reloadCertificate } from './tls.ts';
import { othersHaveClosed, printListening, reportReady, runWorkers } from './workers.ts';

const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there; choose another address',
  EACCES: 'this user may not use it; choose a port from 1024 on',
  EADDRNOTAVAIL: 'this machine has no such address',
};

/** Long enough for any answer, short enough for whoever waits for the process to end. */
const STOP_MS_MAX = 5_000;

export const SERVE_SETTINGS = [
  'listen',
  'healthListen',
  'tlsCert',
  'tlsKey',
  'insecureHttp',
  'publicUrl',
  'region',
  'retention',
  'hostsMax',
  'sourcesMax',
  'categories',
  'bodyLimit',
  'trustProxy',
  'rateLimit',
  'maxConnections',
  'drainDelay',
  'logLevel',
] as const satisfies readonly SettingName[];

export type ServeSettings = Settings<(typeof SERVE_SETTINGS)[number]>;

/** Numbers and identity: each here, or elsewhere. */
interface Served {
  identity: Identity | RemoteIdentity;
  store: Store;
  /** Of the audit trail, when identity is elsewhere. */
  folder?: string | null;
}

export const serveCommand = command({
  name: 'serve',
  about: 'answer queries; makes the data folder if there is none',
  settings: ['data', 'workers', ...IDENTITY_SETTINGS, ...SERVE_SETTINGS, ...STORE_SETTINGS],
  required: [],
  check: (origin, io) => [...folderProblems(origin), ...identityProblems(origin, io)],
  async run({ data, workers, ...settings }, _operands, io) {
    const remote = remoteIdentity(settings, io);
    if (cluster.isPrimary) {
      if (!remote && !isInitialised(needed(data))) {
        const names = { domain: 'default', project: 'default', user: 'admin' };
        printMade(io, await initialise(needed(data), names, undefined, io));
      }
      if (workers > 1) return runWorkers(workers, settings.drainDelay * 1_000, io);
    }
    if (!remote) {
      return withInstallation(needed(data), io, settings, (installation) =>
        serve(installation, settings, io, installation.notices),
      );
    }
    const missing = await firstCheck(remote);
    const folder = settings.store === 'lmdb' ? needed(data) : null;
    return withStore(folder, io, settings, (store) =>
      serve({ identity: remote, store, folder }, settings, io, missing === null ? [] : [missing]),
    );
  },
});

/** Identity of its own is in the folder, and so are the numbers unless another store is named. */
function folderProblems(origin: Origin): string[] {
  const elsewhere = origin('identityUrl') !== undefined && origin('store') !== undefined;
  return origin('data') === undefined && !elsewhere ? [FOLDER_REQUIRED] : [];
}

/** The store that was named may have been the one in the folder. */
function needed(data: string | undefined): string {
  if (data === undefined) throw new SettingsError([FOLDER_REQUIRED]);
  return data;
}

/** Until it is told to stop. */
async function serve(served: Served, settings: ServeSettings, io: Io, warnings: readonly string[]) {
  const trouble = await storeTrouble(served.store);
  const server = await startServer(served, settings, io);
  for (const sentence of trouble === null ? warnings : [...warnings, trouble]) server.log.warn(sentence);
  if (cluster.worker === undefined || cluster.worker.id === 1) recordStart(served, settings, server.log, io);
  const retention = retainFor(served.store, settings.retention, io.now, server.log);
  if (cluster.worker) reportReady(server.address);
  else printListening(io, server.address);
  await aborted(io.stop);
  // Together: a prune may be waiting for the write lock.
  await Promise.all([retention.stop(), server.close()]);
  if (served.identity.kind === 'remote') await served.identity.close();
  return 0;
}

/** Settings have no other history: each start records those it runs with. A full disk must not keep the service down. */
function recordStart(
  { identity, folder = null }: Served,
  settings: ServeSettings,
  log: FastifyBaseLogger,
  io: Io,
): void {
  const trail = identity.kind === 'own' ? identity.audit : createAuditTrail(folder, io.now);
  if (identity.kind === 'remote') trail.mirror((record) => log.info({ audit: record }, 'audit'));
  const { listen, healthListen, categories } = settings;
  const shown = Object.entries({
    ...settings,
    listen: `${listen.host}:${listen.port}`,
    healthListen: healthListen && `${healthListen.host}:${healthListen.port}`,
    categories: categories && [...categories].map(([rule, category]) => `${rule}=${category ?? 'none'}`),
  })
    .filter(([, value]) => typeof value !== 'object' || Array.isArray(value))
    .map(([name, value]) => [name, typeof value === 'string' ? withoutPassword(value) : value] as const);
  trail.note({
    id: newAuditId(),
    ...localActor(),
    action: 'service.start',
    object: { type: 'service' },
    after: Object.fromEntries(shown),
    outcome: 'done',
  });
}

/** One that is away may come back, and is waited for; one that turns us away is for somebody to put right first. */
async function storeTrouble(store: Store): Promise<string | null> {
  try {
    await store.ping();
    return null;
  } catch (error) {
    if (!(error instanceof StoreUnavailable) || error instanceof StoreMisconfigured) throw error;
    return `${error.message}; it is tried again`;
  }
}

/** Answers when the server is ready to be called. */
export async function startServer({ identity, store }: Served, settings: ServeSettings, io: Io) {
  const { tlsCert, tlsKey, listen, healthListen } = settings;
  const certificate = tlsCert && tlsKey ? { cert: tlsCert, key: tlsKey } : null;
  if (certificate) checkCertificate(certificate);
  // Loaded here, because it takes longer than most commands that have no use for it.
  const { createApp } = await import('../http/app.ts');
  const { createHealthServer, drain } = await import('../http/connections.ts');
  const app = await createApp({
    store,
    identity,
    now: io.now,
    catalog: { publicUrl: settings.publicUrl ?? null, region: settings.region },
    bodyBytesMax: settings.bodyLimit,
    rateLimit: settings.rateLimit,
    limits: {
      retentionMs: settings.retention,
      hostsMax: settings.hostsMax,
      sourcesMax: settings.sourcesMax,
    },
    maxConnections: settings.maxConnections,
    trustProxy: settings.trustProxy,
    overrides: settings.categories,
    // Names in log lines come from requests.
    logger: {
      level: settings.logLevel,
      stream: io.log ?? io.stderr,
      hooks: { streamWrite: (line) => `${printable(line.trimEnd())}\n` },
    },
    tls: certificate
      ? { cert: readFileSync(certificate.cert), key: readFileSync(certificate.key) }
      : undefined,
  });
  await app.listen(listen).catch((error) => cannotListen('--listen', listen, error));
  const health = healthListen ? createHealthServer(app) : null;
  if (health && healthListen) {
    await once(health.listen(healthListen), 'listening').catch(async (error) => {
      await app.close();
      cannotListen('--health-listen', healthListen, error);
    });
  }
  const stopReloading = certificate ? reloadCertificate(app.server, certificate, app.log) : () => {};
  return {
    address: addressOf(app.server, listen.host, certificate !== null),
    log: app.log,
    /** Answers what is in flight; who is slower than that, or only holds a connection open, is cut off. */
    async close() {
      stopReloading();
      await drain(app, settings.drainDelay * 1_000, cluster.worker ? othersHaveClosed : undefined);
      const patience = setTimeout(() => app.server.closeAllConnections(), STOP_MS_MAX);
      await app.close();
      clearTimeout(patience);
      // Last, so that probes see the service as shutting down, not as gone.
      health?.close();
      health?.closeAllConnections();
    },
  };
}

function cannotListen(option: string, { host, port }: Address, error: NodeJS.ErrnoException): never {
  const reason = LISTEN_ERRORS[error.code ?? ''] ?? error.message;
  throw new UserError(`cannot listen on ${host}:${port} (${option}): ${reason}`);
}

function checkCertificate({ cert, key }: { cert: string; key: string }): void {
  try {
    createSecureContext({ cert: readFileSync(cert), key: readFileSync(key) });
  } catch (error) {
    throw new UserError(
      `--tls-cert ${cert} and --tls-key ${key} are not a certificate and its key: ${(error as Error).message}`,
    );
  }
}

/** As it was asked for, with the port that was found. */
function addressOf(server: Server, host: string, secure: boolean): string {
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  return `${secure ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
