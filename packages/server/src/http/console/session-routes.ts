/** Sign-in, and the state of the session. */
import { ApiError } from '../../errors.ts';
import { DROP_FIXES, DROP_REASONS } from '../../event.ts';
import { KEYS_PER_USER_MAX } from '../../identity/administration.ts';
import type { SignedIn } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { administersDomain, rolesIn } from '../../identity/records.ts';
import { loginSource } from '../auth/actor.ts';
import { parseJson, textAt } from '../auth/json-body.ts';
import {
  checkCookieSupport,
  checkSentByConsole,
  cookieHeader,
  SESSION_COOKIE,
  SESSION_ONLY,
  SIGN_IN_ERRORS,
  sendSessionCookies,
} from '../auth/session-cookie.ts';
import type { Route } from '../route.ts';

const PATH = '/console/api/session';

export function sessionRoutes(
  { authenticator, administration }: RequestIdentity,
  now: () => number,
  { topListsMs, hasGeoip }: { topListsMs: number | undefined; hasGeoip: boolean },
): Route[] {
  const describeSession = ({ user, domain, session }: SignedIn) => ({
    user: { id: user.id, name: user.name, domain: domain.name, domain_id: domain.id, access: user.access },
    administers_domain: administersDomain(user, domain.id),
    projects: administration
      .projectsOf(user)
      .map((project) => ({ id: project.id, name: project.name, roles: rolesIn(user, { project }) })),
    expires_at: session.expires_at,
    // The clock of the browser may be wrong.
    now: now(),
    drop_reasons: DROP_REASONS,
    drop_fixes: DROP_FIXES,
    keys_limit: KEYS_PER_USER_MAX,
    top_lists_ms: topListsMs ?? null,
    has_geoip: hasGeoip,
  });

  return [
    {
      method: 'POST',
      url: PATH,
      schema: { hide: true },
      async handler(request, reply) {
        checkSentByConsole(request);
        checkCookieSupport(request);
        const fields = parseJson(request.body);
        const user = { name: textAt(fields, 'user'), domain: { name: textAt(fields, 'domain') } };
        const source = loginSource(request, 'console');
        const started = await authenticator.signIn(user, textAt(fields, 'password'), source);
        if (typeof started === 'string') throw new ApiError(...SIGN_IN_ERRORS[started]);
        sendSessionCookies(request, reply.code(201), started, now());
        return describeSession(started);
      },
    },
    {
      method: 'GET',
      url: PATH,
      ...SESSION_ONLY,
      session: 'optional',
      /** A 204 without a session: browsers would report a 401 on every first visit. */
      async handler({ signedIn }, reply) {
        return signedIn === null ? reply.code(204).send() : describeSession(signedIn);
      },
    },
    {
      method: 'DELETE',
      url: PATH,
      ...SESSION_ONLY,
      async handler(request, reply) {
        if (request.signedIn) await authenticator.revoke(request.signedIn.session);
        return reply
          .code(204)
          .header('Set-Cookie', cookieHeader(request, SESSION_COOKIE, '', 0))
          .send();
      },
    },
  ];
}
