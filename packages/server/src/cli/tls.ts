import { readFileSync, type Stats, unwatchFile, watchFile } from 'node:fs';
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:tls';
import type { FastifyBaseLogger } from 'fastify';

/** Renewed certificates are there for days before the old one ends; asking the file system costs next to nothing. */
const CHECK_MS = 1_000;

/**
 * Takes up a changed certificate without a restart; new connections get the new one. While the two files do not
 * fit together, as between the writing of one and the other, the old pair stays in use.
 */
export function reloadCertificate(
  server: Server,
  files: { cert: string; key: string },
  log: Pick<FastifyBaseLogger, 'info' | 'error'>,
): () => void {
  function reload(now: Stats, before: Stats): void {
    if (now.mtimeMs === before.mtimeMs && now.ino === before.ino) return;
    if (!(server instanceof TlsServer)) throw new Error('a certificate for a server without TLS');
    try {
      server.setSecureContext({
        cert: readFileSync(files.cert),
        key: readFileSync(files.key),
        minVersion: 'TLSv1.2',
      });
      log.info('the changed certificate is in use');
    } catch (error) {
      log.error({ err: error }, 'the changed certificate cannot be used, the old one stays');
    }
  }
  const paths = [files.cert, files.key];
  for (const path of paths) watchFile(path, { interval: CHECK_MS, persistent: false }, reload);
  return () => {
    for (const path of paths) unwatchFile(path, reload);
  };
}
