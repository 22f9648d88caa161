/** The domain that the credentials of a caller may change. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { administersDomain } from '../../identity/records.ts';
import { callerOf } from '../route.ts';

/**
 * The ID of the domain of a token or session. Throws a 403 unless the password was given for it: a token of a project can
 * be exchanged for one of the domain, and a leaked access key must not create its successor (decision 0020).
 */
export function domainScope(request: FastifyRequest, purpose: string): string {
  if (request.signedIn) return request.signedIn.domain.id;
  const { scope, isExchanged } = callerOf(request);
  // A project scope also contains its domain.
  if (scope !== 'unscoped' && !('project' in scope) && !isExchanged) return scope.domain.id;
  throw new ApiError(
    'WAF.9002',
    `${purpose} needs a token scoped to the domain (auth.scope.domain) and created with the password, ` +
      'not one scoped to a project or an access key; the console works too',
  );
}

/** The same, if the caller administers the domain. */
export function administeredDomain(request: FastifyRequest): string {
  const id = domainScope(request, 'changing users, projects and roles');
  if (!administersDomain(callerOf(request).user, id))
    throw new ApiError('WAF.9002', "this call needs the role 'admin' in the domain");
  return id;
}
