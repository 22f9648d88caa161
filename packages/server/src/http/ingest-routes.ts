/** Log lines by HTTP: counted and durable when the answer comes. */

import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../errors.ts';
import { LINE_BYTES_MAX, LineBlock, lineEnd, splitLines } from '../ingest/blocks.ts';
import type { Overrides } from '../ingest/categories/judge.ts';
import type { Counted, Line, Pipeline } from '../ingest/pipeline.ts';
import { createReader } from '../ingest/reader.ts';
import { Gate } from './gate.ts';
import { INGEST_PARAMETERS } from './ingest-schemas.ts';
import { ingestQueryParser, queryOf } from './query.ts';
import { Recent } from './recent.ts';
import type { Route } from './route.ts';
import { PROJECT_PATH, withErrors } from './schemas.ts';

/**
 * Bodies that are being received or counted at once. When the store is slower than the senders, the next one is
 * told to come back, and memory stays where it is.
 */
const BUFFER_BYTES_MAX = 64 * 1_048_576;
/** Of which signed bodies that are not all there yet: two full ones. */
const UNPROVEN_BYTES_MAX = 2 * 12 * 1_048_576;
/**
 * Bodies that are being counted at once; as events they take ten times their length. Small ones go together, so that
 * they share a commit; a large one goes alone.
 */
const COUNTING_BYTES_MAX = 1_048_576;
/** Sources whose latest requests are remembered, because the lines of one request may come in two bodies. */
const SOURCES_REMEMBERED_MAX = 1_000;
/** In characters. One source has some kilobytes, or up to 3 MiB while parts of long lines are missing. */
const REMEMBERED_LENGTH_MAX = 64 * 1_048_576;
/** What a packed body may unpack to: logs pack ten to one, bombs a thousand to one. */
const UNPACKED_BYTES_MAX = 64 * 1_048_576;
const IDEMPOTENCY_KEY_LENGTH_MAX = 255;

export interface IngestServices {
  /** With unknown hosts registered, or (`registered`) not. */
  pipelines: Record<'auto' | 'registered', Pipeline>;
  /** Categories of single rules, where the table does not suit. */
  overrides: Overrides | undefined;
}

const unpack = promisify(gunzip) as (body: Buffer, options: { maxOutputLength: number }) => Promise<Buffer>;

export function ingestRoutes({ pipelines, overrides }: IngestServices): Route[] {
  const proven = { bytes: 0, bytes_max: BUFFER_BYTES_MAX };
  const unproven = { bytes: 0, bytes_max: UNPROVEN_BYTES_MAX };
  const counting = new Gate(COUNTING_BYTES_MAX);
  const parseIngestQuery = ingestQueryParser();
  const told = new Recent(SOURCES_REMEMBERED_MAX, REMEMBERED_LENGTH_MAX);
  return [
    {
      method: 'POST',
      url: '/ingest/v1/:project_id',
      allow: 'ingest',
      basic: true,
      schema: {
        operationId: 'ingest',
        tags: ['ingest'],
        summary: 'Counts log lines; answers when they are durable',
        params: PROJECT_PATH,
        querystring: { type: 'object', properties: INGEST_PARAMETERS },
        headers: {
          type: 'object',
          properties: {
            'idempotency-key': {
              type: 'string',
              description: 'Sent again with the same key, the lines count once',
            },
            'content-encoding': { type: 'string', enum: ['gzip', 'identity'] },
          },
        },
        response: withErrors(ANSWER),
      },
      /** Before the body is received. A body that does not say how long it is counts as a full one. */
      async reserve(request) {
        const bytes = Number(request.headers['content-length'] ?? request.routeOptions.bodyLimit);
        // A signature can be checked only when the body is there: who is not proven yet has little room, and a
        // stranger with somebody's access key ID cannot take that of others.
        const room = request.claimed === null ? proven : unproven;
        if (room.bytes + bytes > room.bytes_max && room.bytes > 0) {
          throw new ApiError('WAF.3004', 'the service is busy counting: try again in 1 s', {
            'Retry-After': '1',
          });
        }
        room.bytes += bytes;
        return () => {
          room.bytes -= bytes;
        };
      },
      async handler(request) {
        const { project_id: project } = request.params as { project_id: string };
        const { source, format, pattern, host, zone, hosts } = parseIngestQuery(queryOf(request));
        const id = idempotencyKey(request);
        const pipeline = pipelines[hosts];
        return counting.through(weightOf(request), async () => {
          const body = await bodyOf(request);
          // From here to `told.set` nothing is awaited: two bodies of one source must not both be the first.
          const key = JSON.stringify([project, source]);
          const before = told.get(key) ?? '';
          const reader = createReader({ format, pattern, host, zone, overrides }, before);
          const read = pipeline.read(linesOf(body), reader, 'request');
          const state = reader.state();
          told.set(key, state);
          const batch = { project, source: { name: source, format }, ...(id === undefined ? {} : { id }) };
          try {
            const counted = await pipeline.count(read, batch);
            // A part of a line that is sent again must not be joined twice.
            const isKnown = counted.kind === 'duplicate' && before !== '';
            if (isKnown && told.get(key) === state) told.set(key, before);
            return answerOf(counted);
          } catch (error) {
            // Nothing was counted, so the sender's next attempt must not find its own lines told before.
            told.set(key, before);
            throw error;
          }
        });
      },
    },
  ];
}

/** A packed body is as heavy as it may become: only one is unpacked at a time. */
function weightOf({ body, headers }: FastifyRequest): number {
  if (headers['content-encoding'] === 'gzip') return COUNTING_BYTES_MAX;
  return Buffer.isBuffer(body) ? body.length : 0;
}

async function bodyOf(request: FastifyRequest): Promise<Buffer> {
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return body;
  if (encoding !== 'gzip')
    throw new ApiError('WAF.1001', `Content-Encoding is '${encoding}', but must be gzip or absent`);
  try {
    return await unpack(body, { maxOutputLength: UNPACKED_BYTES_MAX });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
      throw new ApiError('WAF.7001', `the body unpacks to more than ${UNPACKED_BYTES_MAX} bytes`);
    }
    throw new ApiError('WAF.1001', 'the body is not gzip, as Content-Encoding says');
  }
}

/** As a block, of which access lines are counted without a look at each, unless a line is too long to be one. */
function linesOf(body: Buffer): Iterable<Line> {
  return hasLongLine(body) ? checkedLines(body) : new LineBlock(body, 1);
}

function hasLongLine(body: Buffer): boolean {
  for (let start = 0; start + LINE_BYTES_MAX < body.length; ) {
    const end = lineEnd(body, start);
    if (end - start > LINE_BYTES_MAX) return true;
    start = end + 1;
  }
  return false;
}

function* checkedLines(body: Buffer): Generator<Line> {
  for (const { number, text } of splitLines(body, 1)) {
    yield { number, text: text.length > LINE_BYTES_MAX ? null : text };
  }
}

function idempotencyKey({ headers }: FastifyRequest): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || key.length === 0 || key.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw new ApiError('WAF.1001', `Idempotency-Key must have 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} characters`);
  }
  return key;
}

function answerOf(counted: Counted) {
  if (counted.kind === 'conflict') throw new Error('a request is no piece of a file');
  if (counted.kind === 'duplicate') return { accepted: 0, dropped: {}, first_drops: [], duplicate: true };
  const { accepted, dropped, first_drops } = counted.outcome;
  return { accepted, dropped, first_drops, duplicate: false };
}

const ANSWER = {
  type: 'object',
  required: ['accepted', 'dropped', 'first_drops', 'duplicate'],
  properties: {
    accepted: { type: 'integer', description: 'Records counted' },
    dropped: {
      type: 'object',
      additionalProperties: { type: 'integer' },
      description: 'Records not counted, by reason',
    },
    first_drops: {
      type: 'array',
      description: 'The first of them, to look at',
      items: {
        type: 'object',
        properties: { line: { type: 'integer' }, reason: { type: 'string' }, text: { type: 'string' } },
      },
    },
    duplicate: {
      type: 'boolean',
      description: 'The Idempotency-Key was seen before: nothing was counted now',
    },
  },
} as const;
