/** Log lines by HTTP: received, unpacked and counted as they arrive; durable when the response comes. */

import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { networkOf } from '../../identity/known-networks.ts';
import type { BodyHash } from '../../identity/signature.ts';
import type { Overrides } from '../../ingest/categories/classify.ts';
import type { Pipeline } from '../../ingest/pipeline.ts';
import { SIGNED_BODY_BYTES_MAX } from '../auth/guard.ts';
import { ingestQueryParser, queryOf } from '../query.ts';
import type { Route } from '../route.ts';
import { PROJECT_PATH, withErrors } from '../schemas.ts';
import { PushCounter } from './push.ts';
import { INGEST_PARAMETERS } from './schemas.ts';
import { READ_BYTES, receive, sizeText, type Upload, UploadBudget } from './uploads.ts';

/** Bytes that are received and not yet counted, of all projects. The exceptions are chunks of 1 MiB. */
const BUDGET = { bytesMax: 64 * 1_048_576, exceptionsMax: 32, waitMsMax: 20_000 } as const;
/**
 * Signed bodies, which are held until their signature is checked: a stranger who knows the ID of an access key can send
 * some too. Shared between addresses and access keys; the exceptions are bodies of 12 MiB.
 */
const SIGNED_BUDGET = { bytesMax: 64 * 1_048_576, exceptionsMax: 4, waitMsMax: 20_000 } as const;
/** Logs unpack to ten or twenty times their length, bombs to a thousand times. What is below the minimum does no harm. */
const UNPACKED_RATIO_MAX = 100;
const UNPACKED_BYTES_MIN = 64 * 1_048_576;
const IDEMPOTENCY_KEY_LENGTH_MAX = 255;

export interface IngestServices {
  /** With unknown hosts registered, or (`registered`) not. */
  pipelines: Record<'auto' | 'registered', Pipeline>;
  /** Categories of single rules, where the table does not suit. */
  overrides: Overrides | undefined;
  /** The longest body of a push that is not signed. */
  bodyBytesMax: number;
  /** Checks the signature of a request whose body the route has received. */
  verifySignature(request: FastifyRequest, body: BodyHash): Promise<void>;
}

export function ingestRoutes({
  pipelines,
  overrides,
  bodyBytesMax,
  verifySignature,
}: IngestServices): Route[] {
  const budget = new UploadBudget(BUDGET);
  const signedBudget = new UploadBudget(SIGNED_BUDGET);
  const pushes = new PushCounter();

  async function verifiedBody(request: FastifyRequest, upload: Upload): Promise<Readable> {
    const hash = createHash('sha256');
    const blocks = new Blocks();
    for await (const bytes of withRoom(receive(request.raw, SIGNED_BODY_BYTES_MAX), upload)) {
      hash.update(bytes);
      blocks.add(bytes);
    }
    await verifySignature(request, { sha256: hash.digest('hex') });
    return Readable.from(blocks.all());
  }

  const parseIngestQuery = ingestQueryParser();
  return [
    {
      method: 'POST',
      url: '/ingest/v1/:project_id',
      allow: 'ingest',
      basic: true,
      streamsBody: true,
      schema: {
        operationId: 'ingest',
        tags: ['ingest'],
        summary: 'Counts log lines; responds when they are durable',
        params: PROJECT_PATH,
        querystring: { type: 'object', properties: INGEST_PARAMETERS },
        headers: {
          type: 'object',
          properties: {
            'idempotency-key': {
              type: 'string',
              description:
                'Sent again with the same key, the lines count once: also those of a push that failed halfway',
            },
            'content-encoding': { type: 'string', enum: ['gzip', 'identity'] },
          },
        },
        response: withErrors(PUSH_RESULT),
      },
      async handler(request) {
        const { project_id: project } = request.params as { project_id: string };
        const { source, format, pattern, host, zone, hosts } = parseIngestQuery(queryOf(request));
        const push = {
          project,
          source: { name: source, format },
          key: idempotencyKey(request),
          pipeline: pipelines[hosts],
          reader: { format, pattern, host, zone, overrides },
        };
        const isPacked = isGzip(request);
        const { pendingSignature } = request;
        const upload = pendingSignature
          ? signedBudget.open(`${networkOf(request.ip)} ${pendingSignature.access}`)
          : budget.open(project);
        const { socket } = request.raw;
        // Nothing may move on the connection while a long push is counted; how fast it is sent is checked otherwise.
        socket.setTimeout?.(0);
        try {
          if (pendingSignature) {
            const body = await verifiedBody(request, upload);
            return await pushes.count(isPacked ? unpack(body) : body, push, () => {});
          }
          const body = receive(request.raw, bodyBytesMax);
          const lines = withRoom(isPacked ? unpack(body) : body, upload);
          return await pushes.count(lines, push, (bytes) => upload.counted(bytes));
        } finally {
          upload.close();
          socket.setTimeout?.(request.server.server.timeout);
        }
      },
    },
  ];
}

/** Reads no faster than there is room. */
async function* withRoom(body: AsyncIterable<Buffer>, upload: Upload): AsyncGenerator<Buffer> {
  const chunks = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      await upload.room();
      const next = await chunks.next();
      upload.received(next.done ? 0 : next.value.length);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    await chunks.return?.();
  }
}

async function* unpack(packed: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let packedBytes = 0;
  let bytes = 0;
  const gunzip = createGunzip({ chunkSize: READ_BYTES });
  async function* counted() {
    for await (const chunk of packed) {
      packedBytes += chunk.length;
      yield chunk;
    }
  }
  // Its failure is that of `gunzip`.
  pipeline(Readable.from(counted()), gunzip).catch(() => {});
  try {
    for await (const chunk of gunzip) {
      bytes += chunk.length;
      if (bytes > Math.max(UNPACKED_BYTES_MIN, UNPACKED_RATIO_MAX * packedBytes)) {
        const limit = `${sizeText(UNPACKED_BYTES_MIN)} and more than ${UNPACKED_RATIO_MAX} times its size`;
        throw new ApiError('WAF.7001', `request body unpacks to more than ${limit}`);
      }
      yield chunk;
    }
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!String(code).startsWith('Z_')) throw error;
    throw new ApiError('WAF.1001', 'the body is not gzip, as Content-Encoding says');
  } finally {
    gunzip.destroy();
  }
}

/** Bytes that came in parts of any length, in blocks of one length: a million parts of one byte would take 100 MB. */
class Blocks {
  readonly #blocks: Buffer[] = [];
  #last = Buffer.alloc(0);
  #used = 0;

  add(bytes: Buffer): void {
    for (let start = 0; start < bytes.length; ) {
      if (this.#used === this.#last.length) {
        this.#last = Buffer.allocUnsafeSlow(READ_BYTES);
        this.#blocks.push(this.#last);
        this.#used = 0;
      }
      const copied = bytes.copy(this.#last, this.#used, start);
      start += copied;
      this.#used += copied;
    }
  }

  all(): Buffer[] {
    return this.#blocks.map((block) => (block === this.#last ? block.subarray(0, this.#used) : block));
  }
}

function isGzip({ headers }: FastifyRequest): boolean {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding === 'gzip' || encoding === 'identity') return encoding === 'gzip';
  throw new ApiError('WAF.1001', `Content-Encoding is '${encoding}', but must be gzip or absent`);
}

function idempotencyKey({ headers }: FastifyRequest): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || key.length === 0 || key.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw new ApiError('WAF.1001', `Idempotency-Key must have 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} characters`);
  }
  return key;
}

const PUSH_RESULT = {
  type: 'object',
  required: ['accepted', 'dropped', 'first_drops', 'without_host', 'duplicate'],
  properties: {
    accepted: { type: 'integer', description: 'Records counted' },
    dropped: {
      type: 'object',
      additionalProperties: { type: 'integer' },
      description: 'Records not counted, by reason',
    },
    first_drops: {
      type: 'array',
      description: 'The first dropped lines, with line number and reason',
      items: {
        type: 'object',
        properties: { line: { type: 'integer' }, reason: { type: 'string' }, text: { type: 'string' } },
      },
    },
    without_host: {
      type: 'integer',
      description:
        'Records among `accepted` without a registered host: they count in the total of the project only',
    },
    duplicate: {
      type: 'boolean',
      description: 'All of it was counted before under the same Idempotency-Key: nothing was counted now',
    },
  },
} as const;
