/** What all statistics queries share: admission, response cache, conditional requests and compression. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Range } from '../../statistics/range.ts';
import type { Store } from '../../store/store.ts';
import { queryOf, type RawQuery } from '../query.ts';
import { callerOf, pathParameter } from '../route.ts';
import type { Admission } from './admission.ts';
import { type Body, contentResponse, createSend, ResponseCache, toBody } from './response-cache.ts';

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
type Parse<Q> = (query: RawQuery, now: number) => Q;

export interface QueryHandlers {
  /** For responses that depend only on the counts in the range. */
  cached<Q extends Range>(
    parse: Parse<Q>,
    compute: (query: Q & { project: string }) => Promise<Body | object>,
  ): Handler;
  /** For responses with host names, which can change while the counts do not. */
  uncached<Q extends Range>(
    parse: Parse<Q>,
    compute: (query: Q & { project: string }) => Promise<object>,
  ): Handler;
}

export function createQueryHandlers(store: Store, admission: Admission, now: () => number): QueryHandlers {
  const cache = new ResponseCache(store);
  const send = createSend();

  /** Parsing waits for admission too: a thousand hosts take a millisecond, which a shed query must not cost. */
  function admit<T>(request: FastifyRequest, compute: () => Promise<T>): Promise<T> {
    return admission.run(pathParameter(request, 'project_id'), callerOf(request).user.id, compute);
  }

  return {
    cached(parse, compute) {
      async function respond(request: FastifyRequest) {
        const rawQuery = queryOf(request);
        const query = { ...parse(rawQuery, now()), project: pathParameter(request, 'project_id') };
        // Read before the counts: if they change in between, the response only looks older than it is.
        const version = await store.version(query);
        const content = await compute(query);
        // Tomorrow, `today` is another range, which may have the same version.
        if (rawQuery.recent !== undefined) return contentResponse(content);
        const { project, from, to } = query;
        const response = { project, from, to, version, body: toBody(content), compressed: new Map() };
        cache.set(request, response);
        return response;
      }

      return async (request, reply) => {
        const response = (await cache.get(request)) ?? (await admit(request, () => respond(request)));
        return send(request, reply, response);
      };
    },

    uncached(parse, compute) {
      return async (request, reply) => {
        const response = await admit(request, async () => {
          const query = parse(queryOf(request), now());
          return contentResponse(await compute({ ...query, project: pathParameter(request, 'project_id') }));
        });
        return send(request, reply, response);
      };
    },
  };
}
