/** Who calls, and may they: decided before anything else of a request is looked at. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../errors.ts';
import type { Caller, Identity } from '../identity/identity.ts';
import type { Role } from '../identity/records.ts';
import { checkProjectId } from './query.ts';
import type { RateLimit } from './rate-limit.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on every route that asks for a role. */
    caller: Caller | null;
  }
  interface FastifyContextConfig {
    /** The role that a route asks for; absent on routes that are open to all. `admin` may do everything. */
    role?: Role;
  }
}

export function createAuthenticate(identity: Identity, rateLimit: RateLimit) {
  return async (request: FastifyRequest): Promise<void> => {
    const { role } = request.routeOptions.config;
    if (role === undefined) return;
    const caller = tokenCaller(identity, request);
    // Kept for the log even if the request goes no further.
    request.caller = caller;
    rateLimit(caller.user.id);
    const { project_id } = request.params as { project_id: string };
    checkProjectId(project_id);
    if (caller.project.id !== project_id) {
      throw new ApiError('WAF.9002', 'the token was issued for another project than the one in the path');
    }
    if (!caller.roles.includes(role) && !caller.roles.includes('admin')) {
      throw new ApiError('WAF.9002', `the user has not the role '${role}' in this project`);
    }
  };
}

const REFUSALS = {
  unknown: 'the token in X-Auth-Token is not one of this service',
  expired: 'the token in X-Auth-Token has expired',
  void: 'the token in X-Auth-Token is no longer valid',
} as const;

function tokenCaller(identity: Identity, request: FastifyRequest): Caller {
  const token = request.headers['x-auth-token'];
  if (token === undefined) throw new ApiError('WAF.9001', 'the request has no X-Auth-Token header');
  // Node joins a repeated header of this kind with a comma, so it is always one string.
  const check = identity.checkToken(String(token));
  if (check.kind !== 'caller') throw new ApiError('WAF.9001', REFUSALS[check.kind]);
  return check.caller;
}
