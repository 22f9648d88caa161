/** Pushes: log lines over HTTP, received, decompressed and counted as they arrive, and durable before the response. */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import type { FastifyRequest } from 'fastify';
import { ApiError, invalid, malformed } from '../../errors.ts';
import { networkOf } from '../../identity/known-networks.ts';
import type { BodyHash } from '../../identity/signature.ts';
import type { Overrides } from '../../ingest/categories/classify.ts';
import { CompressedInput } from '../../ingest/compression.ts';
import { countLineEnds } from '../../ingest/lines.ts';
import type { Pipeline } from '../../ingest/pipeline.ts';
import { FORMAT_NAMES } from '../../ingest/reader.ts';
import { SIGNED_BODY_BYTES_MAX } from '../auth/guard.ts';
import { ingestQueryParser, queryOf } from '../query.ts';
import {
  array,
  counts,
  integer,
  object,
  ok,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
} from '../route.ts';
import { PushCounter } from './push.ts';
import { READ_BYTES, receive, sizeText, type Upload, UploadBudget } from './uploads.ts';

/** Limits the bytes of all projects that are received and not yet counted. The exceptions are chunks of 1 MiB. */
const BUDGET = { bytesMax: 64 * 1_048_576, exceptionsMax: 32 } as const;
/**
 * Limits signed bodies, which are kept until their signature is verified: strangers who know the ID of an access key can
 * send some too. Networks and access keys share it; the exceptions are bodies of 12 MiB.
 */
const SIGNED_BUDGET = { bytesMax: 64 * 1_048_576, exceptionsMax: 4 } as const;
/**
 * Bounds the processor time per byte received (decision 0021): logs decompress to ten or twenty times their size, repetitive
 * ones to a hundred times, zip bombs to a thousand times. Each line counts as some bytes more, because the shortest take
 * as long as 32 bytes of a long one. Up to the minimum, none does harm.
 */
const DECOMPRESSED_RATIO_MAX = 200;
const DECOMPRESSED_BYTES_MIN = 1_048_576;
const LINE_BYTES_EXTRA = 32;
const IDEMPOTENCY_KEY_LENGTH_MAX = 255;
/** Uploads may take hours, but revoked credentials must not work for longer than this. */
const CHECK_EVERY_MS = 1_000;

interface IngestServices {
  /** `auto` registers unknown hosts, `registered` does not. */
  pipelines: Record<'auto' | 'registered', Pipeline>;
  /** Categories of single rules that override the table. */
  overrides: Overrides | undefined;
  /** The largest body of an unsigned push. */
  bodyBytesMax: number;
  /** Verifies the signature of a request whose body the route has received. */
  verifySignature(request: FastifyRequest, body: BodyHash): Promise<void>;
  /** Throws ApiError if the credentials of an unsigned request have been revoked. */
  checkAgain(request: FastifyRequest): Promise<void>;
}

export function ingestRoutes({
  pipelines,
  overrides,
  bodyBytesMax,
  verifySignature,
  checkAgain,
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
        summary: 'Count log lines, and respond when they are durable',
        params: PROJECT_PATH,
        querystring: partialObject(INGEST_PARAMETERS),
        headers: partialObject({
          'idempotency-key': string(
            'Makes retries safe: lines sent again with the same key count once, even if the first push failed halfway. ' +
              'Without it, equal pushes that are signed in the same second count once.',
          ),
          'content-encoding': string('Compression of the body.', { enum: ['gzip', 'identity'] }),
        }),
        response: ok('The lines are counted and durable.', PUSH_RESULT),
      },
      async handler(request) {
        const project = pathParameter(request, 'project_id');
        const { source, format, pattern, host, zone, hosts } = parseIngestQuery(queryOf(request));
        const push = {
          project,
          source: { name: source, format },
          key: idempotencyKey(request),
          pipeline: pipelines[hosts],
          reader: { format, pattern, host, zone, overrides },
        };
        const isCompressed = isGzip(request);
        const { pendingSignature } = request;
        const upload = pendingSignature
          ? signedBudget.open(`${networkOf(request.ip)} ${pendingSignature.access}`)
          : budget.open(project);
        const { socket } = request.raw;
        // The connection may be idle while a long push is counted; `receive` checks the rate of the upload.
        socket.setTimeout?.(0);
        try {
          if (pendingSignature) {
            const body = await verifiedBody(request, upload);
            return await pushes.count(isCompressed ? decompress(body) : body, push, () => {});
          }
          const body = whileAllowed(receive(request.raw, bodyBytesMax), () => checkAgain(request));
          const lines = withRoom(isCompressed ? decompress(body) : body, upload);
          return await pushes.count(lines, push, (bytes) => upload.counted(bytes));
        } catch (error) {
          if (!(error instanceof CompressedInput)) throw error;
          throw malformed(`the body is ${error.what}: send plain text, or gzip with Content-Encoding: gzip`);
        } finally {
          upload.close();
          socket.setTimeout?.(request.server.server.timeout);
        }
      },
    },
  ];
}

/** Checks the credentials once a second, and at the end. */
async function* whileAllowed(
  body: AsyncIterable<Buffer>,
  check: () => Promise<void>,
): AsyncGenerator<Buffer> {
  let checkedAt = performance.now();
  const checkInTime = async () => {
    const now = performance.now();
    if (now - checkedAt < CHECK_EVERY_MS) return;
    await check();
    checkedAt = now;
  };
  for await (const chunk of body) {
    await checkInTime();
    yield chunk;
  }
  await checkInTime();
}

/** Reads no faster than the budget has room. */
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

async function* decompress(compressed: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let work = 0;
  const gunzip = createGunzip({ chunkSize: READ_BYTES });
  // The loop below throws the same error.
  pipeline(compressed, gunzip).catch(() => {});
  try {
    for await (const chunk of gunzip) {
      work += chunk.length + LINE_BYTES_EXTRA * countLineEnds(chunk);
      if (work > DECOMPRESSED_BYTES_MIN + DECOMPRESSED_RATIO_MAX * gunzip.bytesWritten) throw tooCompressed();
      yield chunk;
    }
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!String(code).startsWith('Z_')) throw error;
    throw malformed('Content-Encoding is gzip, but the body is not: compress it, or remove the header');
  } finally {
    gunzip.destroy();
  }
}

function tooCompressed(): ApiError {
  const limit = `${sizeText(DECOMPRESSED_BYTES_MIN)} and ${DECOMPRESSED_RATIO_MAX} times its size`;
  const message = `request body decompresses to more than ${limit}, with ${LINE_BYTES_EXTRA} bytes added to each line`;
  return new ApiError('WAF.7001', `${message}: send it without compression`);
}

/** Collects bytes in blocks of one size: a million parts of one byte each would take 100 MB. */
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
  throw invalid('Content-Encoding', encoding, 'must be gzip or absent');
}

/** The key of a signed push without one is its signature: those who capture the request could send it again. */
function idempotencyKey({ headers, pendingSignature }: FastifyRequest): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return pendingSignature ? `signature ${pendingSignature.signature}` : undefined;
  if (pendingSignature?.signedHeaders.includes('idempotency-key') === false) {
    throw malformed('the signature does not cover Idempotency-Key: sign the header, too');
  }
  if (typeof key !== 'string' || key.length === 0 || key.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw malformed(`Idempotency-Key must have 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} characters`);
  }
  return key;
}

const PUSH_RESULT = object({
  accepted: integer('Number of records counted.'),
  dropped: counts('Number of records dropped, by reason.'),
  first_drops: array(
    object({
      line: integer('Line number.'),
      reason: string('One of the drop reasons in docs/log-formats.md.'),
      text: string('Beginning of the line.'),
    }),
    { description: 'The first dropped lines.' },
  ),
  without_host: integer(
    'Number of records among `accepted` without a registered host, which count in the total of the project only.',
  ),
  duplicate: {
    type: 'boolean',
    description:
      'Whether all lines were counted before under the same Idempotency-Key or signature, so none counted now.',
  },
});

/** The parameters of a log source, as on the command line. */
const INGEST_PARAMETERS = {
  source: string('Name of the log source.', { default: 'default' }),
  format: string('Format of the lines.', { enum: [...FORMAT_NAMES], default: 'auto' }),
  pattern: string('Format of access log lines: an nginx log_format or an Apache LogFormat string.', {
    maxLength: 4_096,
  }),
  host: string('Host name for logs that do not contain one.'),
  timezone: string('Time zone for logs that do not contain one: an offset or an IANA name.', {
    default: '+00:00',
  }),
  hosts: string(
    'Whether to register unknown host names (`auto`) or count them in the total of the project only (`registered`).',
    { enum: ['auto', 'registered'], default: 'auto' },
  ),
};
