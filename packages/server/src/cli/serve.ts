/** `serve`: the service as a process, from its options to the listener and back. */
import cluster from 'node:cluster';
import { once } from 'node:events';
import { readFileSync, type Stats, unwatchFile, watchFile } from 'node:fs';
import type { Server } from 'node:http';
import { createServer } from 'node:net';
import { resolve } from 'node:path';
import { createSecureContext, Server as TlsServer } from 'node:tls';
import type { FastifyBaseLogger } from 'fastify';
import { openAuditFile } from '../audit/audit-file.ts';
import { newAuditEntry } from '../audit/audit-trail.ts';
import { IDENTITY_OPTIONS, type ListenAddress, type SERVER_OPTIONS, SERVICE_OPTIONS } from '../config.ts';
import { IdentityUnavailable, ServiceUserRejected } from '../identity/errors.ts';
import type { Identity } from '../identity/identity.ts';
import { openRemoteIdentity, type RemoteIdentity } from '../identity/remote/remote-identity.ts';
import { printable } from '../printable.ts';
import { retainFor } from '../store/retention.ts';
import { type Store, StoreMisconfigured, StoreUnavailable } from '../store/store.ts';
import { command, type Io, UserError } from './command.ts';
import { localActor } from './data-directory.ts';
import { DEFAULT_NAMES, initialise, printInitialised } from './init.ts';
import {
  hasInstallation,
  type Location,
  locationProblems,
  whenAvailable,
  withInstallation,
  withStore,
} from './installation.ts';
import { nameOf, type Source, type Values, withoutPassword } from './options.ts';
import { othersHaveClosed, printListening, reportReady, runWorkers } from './workers.ts';

/** Replaces --identity-password-file. Not an option, because `ps` shows options to everyone. */
const IDENTITY_PASSWORD_VARIABLE = 'WAFSTAT_IDENTITY_PASSWORD';
/** Requests that take longer than this are cut off at shutdown. */
const STOP_MS_MAX = 5_000;
/** How often to look for a renewed certificate. */
const CERTIFICATE_CHECK_MS = 1_000;

type ServiceSource = Source<typeof SERVICE_OPTIONS>;
export type ServerValues = Values<typeof SERVER_OPTIONS>;

interface Served {
  identity: Identity | RemoteIdentity;
  store: Store;
  /** Of the audit trail, with Keystone. */
  directory?: string | null;
  /** Of the installation, for the commands that the console shows. */
  location?: Pick<Location, 'store' | 'data'>;
}

export const serveCommand = command({
  name: 'serve',
  description:
    'run the server; creates the data directory, or the installation in PostgreSQL, if it does not exist',
  examples: [
    'wafstat serve --data ./data',
    'WAFSTAT_STORE=postgres WAFSTAT_POSTGRES_URL=postgres://wafstat@127.0.0.1/wafstat wafstat serve',
    'wafstat serve --data ./data --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem',
  ],
  options: SERVICE_OPTIONS,
  check: (values, source, io) => [...locationProblems(values, source), ...identityProblems(source, io)],
  async run({ workers, ...values }, _operands, io) {
    const remote = remoteIdentity(values, io);
    if (cluster.isPrimary) {
      if (!remote && !(await whenAvailable(() => hasInstallation(values, io), io)))
        await firstStart(values, io);
      if (workers > 1) return runWorkers(workers, values.drainDelay * 1_000, io);
    }
    const { data, ...server } = values;
    if (!remote) {
      return withInstallation(values, io, (installation) =>
        serve({ ...installation, location: values }, server, io, installation.notices),
      );
    }
    const warning = await checkIdentityService(remote);
    const directory = values.store === 'lmdb' && data !== undefined ? data : null;
    return withStore(directory, io, values, (store) =>
      serve({ identity: remote, store, directory }, server, io, warning === null ? [] : [warning]),
    );
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

/** Null without --identity-url. */
function remoteIdentity(values: Values<typeof IDENTITY_OPTIONS>, { env, now }: Io): RemoteIdentity | null {
  const { identityUrl, identityUser, identityDomain, identityPasswordFile, identityCache } = values;
  if (identityUrl === undefined || identityUser === undefined) return null;
  const password =
    identityPasswordFile === undefined
      ? env[IDENTITY_PASSWORD_VARIABLE]
      : readFileSync(identityPasswordFile, 'utf8').replace(/\r?\n$/, '');
  if (!password) throw new UserError('the password of --identity-user is empty');
  return openRemoteIdentity({
    // Keystone's own configuration often includes the version in the URL.
    baseUrl: identityUrl.replace(/\/v3$/, ''),
    user: { name: identityUser, domain: identityDomain, password },
    cacheTtlMs: identityCache,
    now,
  });
}

/** Fails if the service rejects our credentials; resolves to a warning if it is unavailable, which may pass. */
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

/** Checks what could keep the server from starting before it prints a password that is shown only once. */
async function firstStart(values: ServerValues & Location, io: Io): Promise<void> {
  certificateOf(values);
  await checkCanListen('--listen', values.listen);
  if (values.healthListen) await checkCanListen('--health-listen', values.healthListen);
  const created = await initialise(values, DEFAULT_NAMES, undefined, io);
  // Null if another process was faster: that one prints the password.
  if (created !== null) printInitialised(io, created);
}

/** Binds the address and releases it. */
export async function checkCanListen(option: string, address: ListenAddress): Promise<void> {
  const probe = createServer();
  await once(probe.listen({ ...address, exclusive: true }), 'listening').catch((error) =>
    cannotListen(option, address, error),
  );
  await new Promise((resolve) => probe.close(resolve));
}

/** Resolves to the exit status after a stop. */
async function serve(served: Served, values: ServerValues, io: Io, warnings: readonly string[]) {
  const trouble = await storeWarning(served.store);
  const server = await startServer(served, values, io);
  for (const warning of trouble === null ? warnings : [...warnings, trouble]) server.log.warn(warning);
  if (cluster.worker === undefined || cluster.worker.id === 1)
    await recordStart(served, values, server.log, io);
  const kept = { eventsMs: values.retention, topListsMs: values.detailsRetention };
  const retention = retainFor(served.store, kept, io.now, server.log);
  if (cluster.worker) reportReady(server.address);
  else printListening(io, server.address);
  await whenAborted(io.stop);
  // Concurrently: a prune may be waiting for the write lock.
  await Promise.all([retention.stop(), server.close()]);
  if (served.identity.kind === 'remote') served.identity.close();
  return 0;
}

/** An unavailable store may come back; a misconfigured one must be fixed first. */
async function storeWarning(store: Store): Promise<string | null> {
  try {
    await store.ping();
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
  const { listen, healthListen, categories } = values;
  const shown = Object.entries({
    ...values,
    listen: `${listen.host}:${listen.port}`,
    healthListen: healthListen && `${healthListen.host}:${healthListen.port}`,
    categories: categories && [...categories].map(([rule, category]) => `${rule}=${category ?? 'none'}`),
  })
    .filter(([, value]) => typeof value !== 'object' || Array.isArray(value))
    .map(([name, value]) => [name, typeof value === 'string' ? withoutPassword(value) : value] as const);
  const after = Object.fromEntries(shown);
  await trail.note(newAuditEntry(localActor(), 'service.start', { type: 'service' }, { after }));
}

/** Resolves when the server accepts connections. */
export async function startServer({ identity, store, location }: Served, values: ServerValues, io: Io) {
  const { listen, healthListen } = values;
  const certificate = certificateOf(values);
  // Loaded here: loading takes longer than most other commands run.
  const { createApp } = await import('../http/app.ts');
  const { createHealthServer, drain } = await import('../http/connections.ts');
  const app = await createApp({
    store,
    identity,
    now: io.now,
    catalog: { publicUrl: values.publicUrl ?? null, region: values.region },
    bodyBytesMax: values.bodyLimit,
    rateLimit: values.rateLimit,
    basicReads: values.basicReads === 'on',
    limits: {
      retentionMs: values.retention,
      hostsMax: values.hostsMax,
      sourcesMax: values.sourcesMax,
      attackSources: values.attackSources,
    },
    maxConnections: values.maxConnections,
    trustProxy: values.trustProxy,
    overrides: values.categories,
    installed: location && { program: io.program ?? 'wafstat', options: locationOptions(location) },
    logger: {
      level: values.logLevel,
      stream: io.log ?? io.stderr,
      // Names in log lines come from requests.
      hooks: { streamWrite: (line) => `${printable(line.trimEnd())}\n` },
    },
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
  const stopReloading = certificate ? reloadCertificate(app.server, certificate, app.log) : () => {};
  return {
    address: addressOf(app.server, listen.host, certificate !== null),
    log: app.log,
    /** Finishes requests in progress; closes connections that are slower than STOP_MS_MAX, or idle. */
    async close() {
      stopReloading();
      await drain(app, values.drainDelay * 1_000, cluster.worker ? othersHaveClosed : undefined);
      const deadline = setTimeout(() => app.server.closeAllConnections(), STOP_MS_MAX);
      await app.close();
      clearTimeout(deadline);
      // Last, so that probes see a service that is shutting down, not a missing one.
      health?.close();
      health?.closeAllConnections();
    },
  };
}

/** Without the URL of PostgreSQL, which may have a password. */
function locationOptions({ store, data }: Pick<Location, 'store' | 'data'>): string[] {
  return [
    ...(data === undefined ? [] : ['--data', resolve(data)]),
    ...(store === 'lmdb' ? [] : ['--store', store]),
  ];
}

const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there; choose another address',
  EACCES: 'permission denied; use a port from 1024 on',
  EADDRNOTAVAIL: 'this machine does not have that address',
};

function cannotListen(option: string, { host, port }: ListenAddress, error: NodeJS.ErrnoException): never {
  const reason = LISTEN_ERRORS[error.code ?? ''] ?? error.message;
  throw new UserError(`cannot listen on ${host}:${port} (${option}): ${reason}`);
}

interface CertificateFiles {
  paths: readonly [cert: string, key: string];
  read(): { cert: Buffer; key: Buffer };
}

/** Null without TLS. Fails if the files are not a certificate and its key. */
function certificateOf({ tlsCert, tlsKey }: ServerValues): CertificateFiles | null {
  if (tlsCert === undefined || tlsKey === undefined) return null;
  const read = () => ({ cert: readFileSync(tlsCert), key: readFileSync(tlsKey) });
  try {
    createSecureContext(read());
  } catch (error) {
    throw new UserError(
      `--tls-cert ${tlsCert} and --tls-key ${tlsKey} are not a certificate and its key: ${(error as Error).message}`,
    );
  }
  return { paths: [tlsCert, tlsKey], read };
}

/** Uses a renewed certificate for new connections. Keeps the old one while only one of the two files is new. */
function reloadCertificate(
  server: Server,
  { paths, read }: CertificateFiles,
  log: Pick<FastifyBaseLogger, 'info' | 'error'>,
): () => void {
  function reload(now: Stats, before: Stats): void {
    if (now.mtimeMs === before.mtimeMs && now.ino === before.ino) return;
    if (!(server instanceof TlsServer)) throw new Error('a certificate for a server without TLS');
    try {
      server.setSecureContext({ ...read(), minVersion: 'TLSv1.2' });
      log.info('the new certificate is in use');
    } catch (error) {
      log.error({ err: error }, 'the new certificate cannot be used; the old one stays in use');
    }
  }
  for (const path of paths) watchFile(path, { interval: CERTIFICATE_CHECK_MS, persistent: false }, reload);
  return () => {
    for (const path of paths) unwatchFile(path, reload);
  };
}

/** The configured host, with the actual port. */
function addressOf(server: Server, host: string, secure: boolean): string {
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  return `${secure ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

export async function whenAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
