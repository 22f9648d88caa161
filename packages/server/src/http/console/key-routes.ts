/** The access keys of whoever is signed in. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { KEYS_PER_USER_MAX } from '../../identity/administration.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { keyFileCsv } from '../../identity/key-file.ts';
import type { AccessKeyInfo } from '../../identity/records.ts';
import { actorOf } from '../auth/actor.ts';
import { at, malformed, parseJson } from '../auth/login.ts';
import { callerOf, type Route } from '../route.ts';
import { explained } from './explained.ts';

const PATH = '/console/api/keys';

export function keyRoutes({ administration }: RequestIdentity): Route[] {
  /** Of the caller; whose else it may be is nobody's business here. */
  function ownKey(request: FastifyRequest): AccessKeyInfo {
    const { access } = request.params as { access: string };
    const key = administration.keysOf(callerOf(request).user.id).find((own) => own.access === access);
    if (key === undefined) throw new ApiError('WAF.4000', 'you have no such access key');
    return key;
  }

  return [
    {
      method: 'GET',
      url: PATH,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        return { items: administration.keysOf(callerOf(request).user.id), limit: KEYS_PER_USER_MAX };
      },
    },
    {
      method: 'POST',
      url: PATH,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      /** Answers the key file. The secret is in it, and nowhere else ever. */
      async handler(request, reply) {
        const user = administration.user(callerOf(request).user.id);
        if (user.access === 'console') {
          throw new ApiError(
            'WAF.9002',
            'this user only supports console access: an access key would be of no use',
          );
        }
        const description = at(parseJson(request.body), 'description') ?? '';
        if (typeof description !== 'string') throw malformed('description must be a string');
        const key = await explained(() => administration.as(actorOf(request)).addKey(user.id, description));
        return reply
          .code(201)
          .header('Content-Disposition', 'attachment; filename="credentials.csv"')
          .type('text/csv; charset=utf-8')
          .send(keyFileCsv(user.name, key));
      },
    },
    {
      method: 'PUT',
      url: `${PATH}/:access`,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        const { access } = ownKey(request);
        const status = at(parseJson(request.body), 'status');
        if (status !== 'active' && status !== 'inactive')
          throw malformed("status must be 'active' or 'inactive'");
        return administration.as(actorOf(request)).changeKey(access, { status });
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:access`,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request, reply) {
        await administration.as(actorOf(request)).removeKey(ownKey(request).access);
        return reply.code(204).send();
      },
    },
  ];
}
