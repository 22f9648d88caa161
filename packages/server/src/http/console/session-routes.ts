/** Signing in and out, who is signed in, and their password. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { LoginSource } from '../../audit/login-refusals.ts';
import { ApiError } from '../../errors.ts';
import { DROP_REASONS } from '../../event.ts';
import {
  administersDomain,
  type NewSession,
  rolesIn,
  type SignInRefusal,
} from '../../identity/authentication.ts';
import type { SignedIn } from '../../identity/authenticator.ts';
import { DEVICE_VALID_MS } from '../../identity/devices.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { actorOf, loginSource } from '../auth/actor.ts';
import { parseJson, text } from '../auth/login.ts';
import {
  checkMayKeepCookie,
  checkSentByConsole,
  deviceCookie,
  deviceText,
  sessionCookie,
  signedIn,
} from '../auth/session-cookie.ts';
import type { Route } from '../route.ts';
import { explained } from './explained.ts';

/** What the console itself asks of a new password; guessing is throttled anyway. */
const PASSWORD_LENGTH_MIN = 8;

export function sessionRoutes(
  { authentication, administration }: RequestIdentity,
  now: () => number,
): Route[] {
  function begin(request: FastifyRequest, reply: FastifyReply, opened: NewSession): object {
    const validMs = opened.session.expires_at - now();
    reply.header('Set-Cookie', [
      sessionCookie(request, opened.text, validMs),
      deviceCookie(request, opened.device, DEVICE_VALID_MS),
    ]);
    return description(opened);
  }

  function description({ user, domain, session }: SignedIn): object {
    return {
      user: { id: user.id, name: user.name, domain: domain.name, access: user.access },
      administers_domain: administersDomain(user, domain.id),
      projects: administration
        .projectsOf(user)
        .map((project) => ({ id: project.id, name: project.name, roles: rolesIn(user, { project }) })),
      expires_at: session.expires_at,
      // The clock of a browser may be wrong; "the last hour" is an hour of the service.
      now: now(),
      drop_reasons: DROP_REASONS,
    };
  }

  return [
    {
      method: 'POST',
      url: '/console/api/session',
      schema: { hide: true },
      async handler(request, reply) {
        checkSentByConsole(request);
        checkMayKeepCookie(request);
        const fields = parseJson(request.body);
        const user = { name: text(fields, 'user'), domain: { name: text(fields, 'domain') } };
        const opened = await authentication.signIn(user, text(fields, 'password'), fromConsole(request));
        if (typeof opened === 'string') throw signInError(opened);
        return begin(request, reply.code(201), opened);
      },
    },
    {
      method: 'GET',
      url: '/console/api/session',
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        return description(signedIn(authentication, request));
      },
    },
    {
      method: 'DELETE',
      url: '/console/api/session',
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request, reply) {
        await authentication.endSession(signedIn(authentication, request).session);
        return reply
          .code(204)
          .header('Set-Cookie', sessionCookie(request, '', 0))
          .send();
      },
    },
    {
      method: 'PUT',
      url: '/console/api/password',
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      /** Ends every other session and every token of the user; the session that asks goes on as a new one. */
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const { user } = signedIn(authentication, request);
        const wanted = text(fields, 'new_password');
        if (wanted.length < PASSWORD_LENGTH_MIN) {
          throw new ApiError('WAF.1001', `new_password must have at least ${PASSWORD_LENGTH_MIN} characters`);
        }
        const check = await authentication.confirmPassword(
          user,
          text(fields, 'old_password'),
          fromConsole(request),
        );
        if (check === 'wrong_credentials') throw new ApiError('WAF.1001', 'the old password is wrong');
        if (check !== 'right') throw signInError(check);
        await explained(() => administration.as(actorOf(request)).setPassword(user.id, wanted));
        const opened = authentication.startSession(administration.user(user.id));
        if (typeof opened === 'string') throw signInError(opened);
        return begin(request, reply, opened);
      },
    },
  ];
}

function fromConsole(request: FastifyRequest): LoginSource {
  return { ...loginSource(request), via: 'console', device: deviceText(request) ?? '' };
}

function signInError(refusal: SignInRefusal): ApiError {
  switch (refusal) {
    case 'wrong_credentials':
      return new ApiError('WAF.9001', 'the user, the domain or the password is wrong');
    case 'user_disabled':
      return new ApiError('WAF.9001', 'this user is disabled');
    case 'programmatic_only':
      return new ApiError('WAF.9002', 'this user only supports programmatic access, not console access');
  }
}
