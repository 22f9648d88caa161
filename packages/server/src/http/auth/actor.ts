/** Who makes a request, for the audit trail. */
import type { FastifyRequest } from 'fastify';
import type { Actor, LoginSource } from '../../audit/audit-trail.ts';
import { malformed } from '../../errors.ts';
import type { Administration, AdministrationView } from '../../identity/administration.ts';
import { IdentityError, UnknownRecord } from '../../identity/errors.ts';
import { callerOf } from '../route.ts';
import { DEVICE_COOKIE, readCookie } from './session-cookie.ts';

export function actorOf(request: FastifyRequest): Actor {
  const { id, name } = callerOf(request).user;
  return {
    user: name,
    user_id: id,
    via: request.signedIn ? 'console' : 'api',
    address: request.ip,
    request_id: request.id,
  };
}

export function loginSource(request: FastifyRequest, via: 'api' | 'console' = 'api'): LoginSource {
  const source = { via, address: request.ip, request_id: request.id };
  return via === 'api' ? source : { ...source, device: readCookie(request, DEVICE_COOKIE) ?? '' };
}

/** Runs a change on behalf of the caller. An impossible change becomes a 400, a change of an unknown record a 404. */
export async function administer<T>(
  administration: AdministrationView,
  request: FastifyRequest,
  change: (administration: Administration) => Promise<T>,
): Promise<T> {
  try {
    return await change(administration.as(actorOf(request)));
  } catch (error) {
    if (error instanceof IdentityError && !(error instanceof UnknownRecord)) throw malformed(error.message);
    throw error;
  }
}
