/** Identity that is kept elsewhere: another wafstat, or a Keystone v3. */
import type { IncomingMessage } from 'node:http';
import { RemoteAuthentication } from './authentication.ts';
import { createIdentityService, type ServiceUser } from './service.ts';
import { type Call, createTransport } from './transport.ts';

/** A lookup takes milliseconds; a caller who waits longer has given up. */
const LOOKUPS = { callMsMax: 5_000, calls_max: 256 };
/** Logins wait up to 15 s after failed ones. Apart, so that none blocks a lookup. */
const FORWARDS = { callMsMax: 30_000, calls_max: 64 };

export interface RemoteIdentity {
  kind: 'remote';
  authentication: RemoteAuthentication;
  /** Rejects when the identity service does not answer, or not us. */
  check(): Promise<void>;
  /** A call of identity that someone sent to us, as it is. Rejects with IdentityUnavailable. */
  forward(call: Call): Promise<IncomingMessage>;
  close(): Promise<void>;
}

export interface RemoteIdentityOptions {
  /** Up to, and without, `/v3`. */
  address: string;
  user: ServiceUser;
  /** How long an answer is believed; what is revoked works so much longer at most. */
  cacheTtlMs: number;
  now: () => number;
}

export function openRemoteIdentity({
  address,
  user,
  cacheTtlMs,
  now,
}: RemoteIdentityOptions): RemoteIdentity {
  const lookups = createTransport(address, LOOKUPS);
  const forwards = createTransport(address, FORWARDS);
  const service = createIdentityService(lookups, user, now);
  let prefixed: Promise<boolean> | null = null;

  /** Whether it has its calls under `/identity` too, as we do. A signature covers the path: it must arrive as it was sent. */
  async function hasPrefix(): Promise<boolean> {
    const answer = await forwards.send({ method: 'GET', path: '/identity/', headers: {} });
    answer.resume();
    return answer.statusCode === 300;
  }

  return {
    kind: 'remote',
    authentication: new RemoteAuthentication(service, cacheTtlMs, now),
    check: () => service.check(),
    async forward(call) {
      if (!call.path.startsWith('/identity')) return forwards.send(call);
      prefixed ??= hasPrefix().catch((error) => {
        prefixed = null;
        throw error;
      });
      if (await prefixed) return forwards.send(call);
      return forwards.send({ ...call, path: call.path.slice('/identity'.length) || '/' });
    },
    async close() {
      lookups.close();
      forwards.close();
    },
  };
}
