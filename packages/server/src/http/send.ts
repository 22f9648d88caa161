/** Sends bodies that are ready as bytes: content negotiation and compression. */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { FastifyReply } from 'fastify';
import Negotiator from 'negotiator';

/**
 * Bypasses `reply.send` with its type checks and hooks, which take 9% of a small cached response.
 * `headers` alternates names and values. Without `body` there is no Content-Length.
 */
export function sendBytes(
  reply: FastifyReply,
  status: number,
  headers: readonly string[],
  body?: Buffer,
): void {
  const sent = ['X-Request-Id', reply.request.id, 'X-Content-Type-Options', 'nosniff', ...headers];
  if (reply.server.stopping) sent.push('Connection', 'close');
  if (body !== undefined) sent.push('Content-Length', String(body.length));
  // `writeHead` replaces the header that cors.ts has set.
  if (reply.raw.hasHeader('Access-Control-Allow-Origin')) sent.push('Vary', 'Origin');
  reply.raw.writeHead(status, sent);
  // Not before `writeHead`: if that throws, Fastify must still send the error.
  reply.hijack();
  if (body === undefined || reply.request.method === 'HEAD') reply.raw.end();
  else reply.raw.end(body);
}

export type ContentCoding = 'br' | 'gzip';

/** A window of 256 KB: the default of 4 MB costs memory for each response and gains nothing. */
const BROTLI = { [constants.BROTLI_PARAM_QUALITY]: 1, [constants.BROTLI_PARAM_LGWIN]: 18 };

export const COMPRESS = {
  /**
   * A day by minute: 9.1 KB in 0.26 ms. Quality 2 makes it 6.9 KB, but takes 0.44 ms, twice as long as the rest of the response; the
   * fastest gzip takes 0.34 ms for 11.2 KB, the default of Brotli 140 ms.
   */
  br: (bytes: Buffer) => promisify(brotliCompress)(bytes, { params: BROTLI }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes, { level: 1 }),
} as const satisfies Record<ContentCoding, (bytes: Buffer) => Promise<Buffer>>;

const ACCEPT_ENCODING_LENGTH_MAX = 1_000;

/** The published types lack the second parameter. */
interface EncodingNegotiator {
  encoding(available: readonly string[], options: { preferred: readonly string[] }): string | undefined;
}

/** The content coding to use: brotli if the client has no preference, undefined for none. */
export function contentCoding(header: string | undefined): ContentCoding | undefined {
  // Parsing takes quadratic time; headers of real clients have up to a hundred characters.
  if (header === undefined || header.length > ACCEPT_ENCODING_LENGTH_MAX) return undefined;
  const negotiator = new Negotiator({ headers: { 'accept-encoding': header } }) as EncodingNegotiator;
  const coding = negotiator.encoding(['br', 'gzip', 'identity'], { preferred: ['br', 'gzip'] });
  return coding === 'br' || coding === 'gzip' ? coding : undefined;
}
