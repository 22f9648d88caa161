/** The signed-in user's session, password and access keys. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { LoginSource } from '../../audit/audit-trail.ts';
import { ApiError, type ErrorCode, malformed } from '../../errors.ts';
import { DROP_FIXES, DROP_REASONS } from '../../event.ts';
import { KEYS_PER_USER_MAX } from '../../identity/administration.ts';
import type { SignedIn } from '../../identity/authenticator.ts';
import { KeyLimitError } from '../../identity/errors.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import type { NewSession, SignInRefusal } from '../../identity/local-authenticator.ts';
import { administersDomain, keyFileCsv, rolesIn } from '../../identity/records.ts';
import { PASSWORD_LENGTH_MIN } from '../../identity/secrets.ts';
import { DEVICE_VALID_MS } from '../../identity/tokens.ts';
import { administer, loginSource } from '../auth/actor.ts';
import { oneOf, optionalTextAt, parseJson, textAt } from '../auth/json-body.ts';
import {
  checkCookieSupport,
  checkSentByConsole,
  cookieHeader,
  DEVICE_COOKIE,
  readCookie,
  SESSION_COOKIE,
  SESSION_ONLY,
  signedIn,
} from '../auth/session-cookie.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';

const KEYS = '/console/api/keys';

export function sessionRoutes(
  { authenticator, administration }: RequestIdentity,
  now: () => number,
  topListsMs: number | undefined,
): Route[] {
  function sendSession(request: FastifyRequest, reply: FastifyReply, started: NewSession): object {
    const validMs = started.session.expires_at - now();
    reply.header('Set-Cookie', [
      cookieHeader(request, SESSION_COOKIE, started.text, validMs),
      cookieHeader(request, DEVICE_COOKIE, started.device, DEVICE_VALID_MS),
    ]);
    return describeSession(started);
  }

  function describeSession({ user, domain, session }: SignedIn): object {
    return {
      user: { id: user.id, name: user.name, domain: domain.name, access: user.access },
      administers_domain: administersDomain(user, domain.id),
      projects: administration
        .projectsOf(user)
        .map((project) => ({ id: project.id, name: project.name, roles: rolesIn(user, { project }) })),
      expires_at: session.expires_at,
      // The clock of the browser may be wrong.
      now: now(),
      drop_reasons: DROP_REASONS,
      drop_fixes: DROP_FIXES,
      top_lists_ms: topListsMs ?? null,
    };
  }

  return [
    {
      method: 'POST',
      url: '/console/api/session',
      schema: { hide: true },
      async handler(request, reply) {
        checkSentByConsole(request);
        checkCookieSupport(request);
        const fields = parseJson(request.body);
        const user = { name: textAt(fields, 'user'), domain: { name: textAt(fields, 'domain') } };
        const started = await authenticator.signIn(user, textAt(fields, 'password'), fromConsole(request));
        if (typeof started === 'string') throw new ApiError(...SIGN_IN_ERRORS[started]);
        return sendSession(request, reply.code(201), started);
      },
    },
    {
      method: 'GET',
      url: '/console/api/session',
      ...SESSION_ONLY,
      async handler(request) {
        return describeSession(await signedIn(authenticator, request));
      },
    },
    {
      method: 'DELETE',
      url: '/console/api/session',
      ...SESSION_ONLY,
      async handler(request, reply) {
        await authenticator.revoke((await signedIn(authenticator, request)).session);
        return reply
          .code(204)
          .header('Set-Cookie', cookieHeader(request, SESSION_COOKIE, '', 0))
          .send();
      },
    },
    {
      method: 'PUT',
      url: '/console/api/password',
      ...SESSION_ONLY,
      /** Revokes all tokens and sessions of the user, and starts a new session for the caller. */
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const { user } = await signedIn(authenticator, request);
        const newPassword = textAt(fields, 'new_password');
        if (newPassword.length < PASSWORD_LENGTH_MIN) {
          throw malformed(`new_password must have at least ${PASSWORD_LENGTH_MIN} characters`);
        }
        const oldPassword = textAt(fields, 'old_password');
        const checked = await authenticator.confirmPassword(user, oldPassword, fromConsole(request));
        if (checked === 'wrong_credentials') throw malformed('the old password is wrong');
        if (typeof checked === 'string') throw new ApiError(...SIGN_IN_ERRORS[checked]);
        const changed = await administer(administration, request, (admin) =>
          admin.setPassword(user.id, newPassword, checked),
        );
        const started = await authenticator.startSession(changed);
        if (typeof started === 'string') throw new ApiError(...SIGN_IN_ERRORS[started]);
        return sendSession(request, reply, started);
      },
    },
  ];
}

export function keyRoutes({ administration }: RequestIdentity): Route[] {
  /** The ID in the path, if it is a key of the caller. */
  function ownKey(request: FastifyRequest): string {
    const access = pathParameter(request, 'access');
    const keys = administration.keysOf(callerOf(request).user.id);
    if (!keys.some((key) => key.access === access)) throw new ApiError('WAF.4000', 'unknown access key');
    return access;
  }

  return [
    {
      method: 'GET',
      url: KEYS,
      ...SESSION_ONLY,
      async handler(request) {
        return { items: administration.keysOf(callerOf(request).user.id), limit: KEYS_PER_USER_MAX };
      },
    },
    {
      method: 'POST',
      url: KEYS,
      ...SESSION_ONLY,
      /** Sends the key file, the only place that contains the secret. */
      async handler(request, reply) {
        const user = administration.user(callerOf(request).user.id);
        if (user.access === 'console') {
          throw new ApiError('WAF.9002', 'this user only supports console access and cannot use access keys');
        }
        const description = optionalTextAt(parseJson(request.body), 'description') ?? '';
        const key = await administer(administration, request, (admin) =>
          admin.addKey(user.id, description).catch(explainKeyLimit),
        );
        return reply
          .code(201)
          .header('Content-Disposition', 'attachment; filename="credentials.csv"')
          .type('text/csv; charset=utf-8')
          .send(keyFileCsv(user.name, key));
      },
    },
    {
      method: 'PUT',
      url: `${KEYS}/:access`,
      ...SESSION_ONLY,
      async handler(request) {
        const access = ownKey(request);
        const status = oneOf(parseJson(request.body), 'status', ['active', 'inactive']);
        return administer(administration, request, (admin) => admin.changeKey(access, { status }));
      },
    },
    {
      method: 'DELETE',
      url: `${KEYS}/:access`,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const access = ownKey(request);
        await administer(administration, request, (admin) => admin.removeKey(access));
        return reply.code(204).send();
      },
    },
  ];
}

export function explainKeyLimit(error: unknown): never {
  if (!(error instanceof KeyLimitError)) throw error;
  throw malformed(`a user can have at most ${KEYS_PER_USER_MAX} access keys: delete one first`);
}

function fromConsole(request: FastifyRequest): LoginSource {
  return { ...loginSource(request), via: 'console', device: readCookie(request, DEVICE_COOKIE) ?? '' };
}

const SIGN_IN_ERRORS: Readonly<Record<SignInRefusal, [ErrorCode, string]>> = {
  wrong_credentials: ['WAF.9001', 'wrong user, domain or password'],
  user_disabled: ['WAF.9001', 'this user is disabled'],
  programmatic_only: ['WAF.9002', 'this user only supports programmatic access, not console access'],
};
