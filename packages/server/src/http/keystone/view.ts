/** What a caller may read. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import type { Caller } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { administersDomain, type Domain, type Project, rolesIn, type User } from '../../identity/records.ts';
import { callerOf } from '../route.ts';

export type View = ReturnType<typeof createView>;

/** The caller. A session reads what a token for the domain of its user reads. */
export function readerOf(request: FastifyRequest): Caller {
  const caller = callerOf(request);
  return request.signedIn ? { ...caller, scope: { domain: request.signedIn.domain } } : caller;
}

export function createView({ administration }: RequestIdentity) {
  const administers = ({ user, scope }: Caller, domainId: string): boolean => {
    if (!administersDomain(user, domainId)) return false;
    // A token for one project or domain does not show others.
    if (scope === 'unscoped') return true;
    return ('project' in scope ? scope.project.domain_id : scope.domain.id) === domainId;
  };
  const project = (caller: Caller, project: Project) =>
    administers(caller, project.domain_id) ||
    (project.enabled && rolesIn(caller.user, { project }).length > 0);
  return {
    user: (caller: Caller, { id, domain_id }: User) =>
      id === caller.user.id || administers(caller, domain_id),
    project,
    /** The IDs of the caller's domain, of domains in which the caller has a role, and of domains of the caller's projects. */
    domainIds: ({ user }: Caller) =>
      new Set([
        user.domain_id,
        ...Object.keys(user.roles),
        ...administration.projectsOf(user).map(({ domain_id }) => domain_id),
      ]),
    /** The domains that the caller administers. */
    domains: (caller: Caller) => administration.domains().filter(({ id }) => administers(caller, id)),
  };
}

export function administeredDomains(view: View, caller: Caller): Domain[] {
  const domains = view.domains(caller);
  if (domains.length === 0) throw new ApiError('WAF.9002', "this call needs the role 'admin' in a domain");
  return domains;
}
