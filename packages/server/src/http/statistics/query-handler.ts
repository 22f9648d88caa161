/** What all statistics queries share: admission, response cache, conditional requests, compression and traces. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { timed } from '../../diagnostics.ts';
import { malformed } from '../../errors.ts';
import type { Range } from '../../statistics/range.ts';
import { type Store, wholeHours } from '../../store/store.ts';
import type { StatisticsQuery } from '../query.ts';
import { callerOf, pathParameter } from '../route.ts';
import type { Admission } from './admission.ts';
import {
  contentResponse,
  type Notes,
  type Response,
  ResponseCache,
  rangeResponse,
  sendResponse,
} from './response-cache.ts';
import { type Trace, traceOf } from './trace.ts';
import { type Parse, UrlParsers } from './url-parser.ts';

/** Runs a part of a request in its turn, unless its client has disconnected. */
export function runAdmitted<T>(
  admission: Admission,
  request: FastifyRequest,
  compute: () => Promise<T>,
): Promise<T> {
  return admission.run(pathParameter(request, 'project_id'), callerOf(request).user.id, () => {
    // Under overload, clients give up and ask again: what nobody waits for would delay the others.
    if (request.raw.socket.destroyed) throw malformed('the client has disconnected');
    return compute();
  });
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

export interface QueryHandlers {
  /**
   * For responses that depend only on the counts in the range, or with `byHour` in the hours that it touches: stores count
   * values by the hour.
   */
  cached<Q extends StatisticsQuery>(
    parse: Parse<Q>,
    compute: (query: Q & { project: string }, notes: Notes) => Promise<object | string>,
    options?: { byHour: boolean },
  ): Handler;
  /** For responses with host names, which can change while the counts do not. */
  uncached<Q extends StatisticsQuery>(
    parse: Parse<Q>,
    compute: (
      query: Q & { project: string },
      notes: Notes,
      request: FastifyRequest,
    ) => Promise<object | string>,
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
  function admit<T>(
    request: FastifyRequest,
    compute: () => Promise<T>,
    trace: Trace | undefined,
  ): Promise<T> {
    return runAdmitted(admission, request, trace ? trace.queued(compute) : compute);
  }

  const handlerOf =
    (find: (request: FastifyRequest, trace: Trace | undefined) => Promise<Response>): Handler =>
    async (request, reply) => {
      const trace = traceOf(request);
      const response = await find(request, trace);
      if (trace === undefined) return sendResponse(request, reply, response);
      await trace.run(() => sendResponse(request, reply, response, trace));
      request.log.debug({ reqId: request.id, trace }, 'query');
    };

  /** Reads the query of a request. */
  function createReader<Q extends StatisticsQuery>(parse: Parse<Q>) {
    const parseUrl = parsers.add(parse);
    return (request: FastifyRequest) => parseUrl(request.url, pathParameter(request, 'project_id'), now());
  }

  return {
    cached(parse, compute, { byHour } = { byHour: false }) {
      const read = createReader(parse);
      async function respond(request: FastifyRequest) {
        const { query, isRecent } = read(request);
        // Read before the counts: if they change in between, the response only looks older than it is.
        const versioned = versionedRange(query, byHour);
        const version = await timed('version', () => store.version(versioned));
        const notes: Notes = {};
        const content = await timed('compute', () => compute(query, notes));
        // Tomorrow, `today` is another range, which may have the same version.
        if (isRecent) return contentResponse(content, undefined, notes);
        const response = rangeResponse(versioned, version, content, notes);
        cache.set(request, response);
        return response;
      }

      return handlerOf(async (request, trace) => {
        const known = cache.get(request);
        trace?.addLookup('responses', known !== undefined);
        const isCurrent = known && known.version === (await store.version(known));
        return isCurrent ? known : admit(request, () => respond(request), trace);
      });
    },

    uncached(parse, compute) {
      const read = createReader(parse);
      return handlerOf((request, trace) =>
        admit(
          request,
          async () => {
            const { query } = read(request);
            const notes: Notes = {};
            const content = await timed('compute', () => compute(query, notes, request));
            return contentResponse(content, query, notes);
          },
          trace,
        ),
      );
    },
  };
}

/** The range whose version the response depends on. In an hour over the limit, an attack can displace another one. */
function versionedRange(
  query: StatisticsQuery & { project: string; filter?: unknown },
  byHour: boolean,
): Range & { project: string } {
  return byHour || query.filter !== undefined ? { project: query.project, ...wholeHours(query) } : query;
}
