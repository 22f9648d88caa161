/** What all statistics queries share: admission, response cache, conditional requests and compression. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Range } from '../../statistics/range.ts';
import type { Store } from '../../store/store.ts';
import type { StatisticsQuery } from '../query.ts';
import { callerOf, pathParameter } from '../route.ts';
import type { Admission } from './admission.ts';
import { contentResponse, ResponseCache, rangeResponse, sendResponse } from './response-cache.ts';
import { type Parse, UrlParsers } from './url-parser.ts';

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

/** Widens the range of a query to the one that is counted. */
type Widen = (range: Range) => Range;

export interface QueryHandlers {
  /** For responses that depend only on the counts in the range. */
  cached<Q extends StatisticsQuery>(
    parse: Parse<Q>,
    compute: (query: Q & { project: string }) => Promise<object>,
    widen?: Widen,
  ): Handler;
  /** For responses with host names, which can change while the counts do not. */
  uncached<Q extends StatisticsQuery>(
    parse: Parse<Q>,
    compute: (query: Q & { project: string }) => Promise<object>,
    widen?: Widen,
  ): Handler;
}

export function createQueryHandlers(
  store: Store,
  admission: Admission,
  now: () => number,
  cacheBytes: number,
): QueryHandlers {
  const cache = new ResponseCache(cacheBytes);
  const parsers = new UrlParsers();

  /** Parsing waits for admission too: a thousand hosts take a millisecond, which a shed query must not cost. */
  function admit<T>(request: FastifyRequest, compute: () => Promise<T>): Promise<T> {
    return admission.run(pathParameter(request, 'project_id'), callerOf(request).user.id, compute);
  }

  /** Reads the query of a request. */
  function createReader<Q extends StatisticsQuery>(parse: Parse<Q>, widen: Widen | undefined) {
    const parseUrl = parsers.add(parse);
    return (request: FastifyRequest) => {
      const parsed = parseUrl(request.url, pathParameter(request, 'project_id'), now());
      return widen ? { ...parsed, query: { ...parsed.query, ...widen(parsed.query) } } : parsed;
    };
  }

  return {
    cached(parse, compute, widen) {
      const read = createReader(parse, widen);
      async function respond(request: FastifyRequest) {
        const { query, isRecent } = read(request);
        // Read before the counts: if they change in between, the response only looks older than it is.
        const version = await store.version(query);
        const content = await compute(query);
        // Tomorrow, `today` is another range, which may have the same version.
        if (isRecent) return contentResponse(content);
        const response = rangeResponse(query, version, content);
        cache.set(request, response);
        return response;
      }

      return async (request, reply) => {
        const known = cache.get(request);
        const isCurrent = known && known.version === (await store.version(known));
        const response = isCurrent ? known : await admit(request, () => respond(request));
        return sendResponse(request, reply, response);
      };
    },

    uncached(parse, compute, widen) {
      const read = createReader(parse, widen);
      return async (request, reply) => {
        const response = await admit(request, async () =>
          contentResponse(await compute(read(request).query)),
        );
        return sendResponse(request, reply, response);
      };
    },
  };
}
