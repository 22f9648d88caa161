/** Who makes a request, for the audit trail. */
import type { FastifyRequest } from 'fastify';
import type { Actor } from '../../audit/audit-trail.ts';
import type { LoginSource } from '../../audit/login-refusals.ts';
import { callerOf } from '../route.ts';

export function actorOf(request: FastifyRequest): Actor {
  const { id, name } = callerOf(request).user;
  const isConsole = request.routeOptions.config.session === 'only';
  return {
    user: name,
    user_id: id,
    via: isConsole ? 'console' : 'api',
    address: request.ip,
    request_id: request.id,
  };
}

export function loginSource(request: FastifyRequest): LoginSource {
  return { via: 'api', address: request.ip, request_id: request.id };
}
