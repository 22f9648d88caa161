/** Addresses to listen on, and TLS certificates. */
import { once } from 'node:events';
import { readFileSync, type Stats, unwatchFile, watchFile } from 'node:fs';
import type { Server } from 'node:http';
import { createServer } from 'node:net';
import { createSecureContext, Server as TlsServer } from 'node:tls';
import type { FastifyBaseLogger } from 'fastify';
import type { ListenAddress } from '../config.ts';
import { isLoopback } from '../loopback.ts';
import { UserError } from './command.ts';

/** How often to look for a renewed certificate. */
const CERTIFICATE_CHECK_MS = 1_000;

/** Binds the address and releases it. */
export async function checkCanListen(option: string, address: ListenAddress): Promise<void> {
  const probe = createServer();
  await once(probe.listen({ ...address, exclusive: true }), 'listening').catch((error) =>
    cannotListen(option, address, error),
  );
  await new Promise((resolve) => probe.close(resolve));
}

/** Null if nobody else can reach the address. */
export function metricsWarning({ host, port }: ListenAddress): string | null {
  if (isLoopback(host)) return null;
  return `everyone who can reach ${host}:${port} can read the metrics, with the names of projects and sources`;
}

const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the address is already in use',
  EACCES: 'permission denied; use a port from 1024 on',
  EADDRNOTAVAIL: 'this machine does not have that address',
};

export function cannotListen(
  option: string,
  { host, port }: ListenAddress,
  error: NodeJS.ErrnoException,
): never {
  const reason = LISTEN_ERRORS[error.code ?? ''] ?? error.message;
  const hint = error.code === 'EADDRINUSE' ? `; choose another address with ${option} HOST:PORT` : '';
  throw new UserError(`cannot listen on ${host}:${port} (${option}): ${reason}${hint}`);
}

interface CertificateFiles {
  paths: readonly [cert: string, key: string];
  read(): { cert: Buffer; key: Buffer };
}

/** Null without TLS. Fails if the files are not a certificate and its key. */
export function certificateOf({
  tlsCert,
  tlsKey,
}: {
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
}): CertificateFiles | null {
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
export function reloadCertificate(
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
export function addressOf(server: Server, host: string, secure: boolean): string {
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  return `${secure ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
