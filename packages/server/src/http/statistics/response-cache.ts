/** Response cache of the statistics queries: ETag per data version, compression, reuse of repeated queries. */
import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { BoundedCache } from '../../cache.ts';
import type { Range } from '../../statistics/range.ts';
import type { Store } from '../../store/store.ts';
import { COMPRESS, type ContentCoding, sendBytes } from '../send.ts';

/** About 120 timelines of a day by minute, with room for their compressed forms. */
const CACHED_BYTES_MAX = 16_777_216;
/** Per response: its URL, and the objects around its bytes. */
const RESPONSE_BYTES = 1_024;
/** URLs requested once: most have 200 characters, those with a thousand hosts 33,000. */
const REQUESTED_CHARACTERS_MAX = 4_194_304;
/** A smaller response fits into one network packet either way. */
const COMPRESSED_BYTES_MIN = 1_400;

export interface Response {
  /** Of the counts in the range, or of the content. Null: the store cannot tell. */
  version: string | null;
  bytes: Buffer;
  compressed: Map<ContentCoding, Buffer>;
}

type CachedResponse = Response & Range & { project: string };

/** A response that depends on more than the counts of a range, for example on host names or on the time. */
export function contentResponse(content: Buffer | object): Response {
  const bytes = toBytes(content);
  const version = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  return { version, bytes, compressed: new Map() };
}

export function toBytes(content: Buffer | object): Buffer {
  return Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
}

export class ResponseCache {
  readonly #store: Store;
  readonly #responses = new BoundedCache<string, CachedResponse>({
    name: 'responses',
    entriesMax: CACHED_BYTES_MAX / RESPONSE_BYTES,
    weightMax: CACHED_BYTES_MAX,
    // Both compressed forms are far smaller than the bytes.
    weight: ({ bytes }, url) => RESPONSE_BYTES + url.length + bytes.length * 1.5,
  });

  /** Most ranges end now and are never requested again: keeping every response would double its processor time. */
  readonly #requestedOnce = new BoundedCache<string, true>({
    name: 'requested_urls',
    entriesMax: Math.ceil(REQUESTED_CHARACTERS_MAX / 200),
    weightMax: REQUESTED_CHARACTERS_MAX,
    weight: (_value, url) => url.length,
  });

  constructor(store: Store) {
    this.#store = store;
  }

  /** The response to a request for the same URL, if no count in its range has changed since. */
  async get(request: FastifyRequest): Promise<CachedResponse | undefined> {
    if (isUncached(request)) return undefined;
    const response = this.#responses.get(request.url);
    const isCurrent = response && response.version === (await this.#store.version(response));
    return isCurrent ? response : undefined;
  }

  /** Keeps the response if the URL was requested before. */
  set(request: FastifyRequest, response: CachedResponse): void {
    if (isUncached(request) || response.version === null) return;
    if (this.#requestedOnce.get(request.url)) this.#responses.set(request.url, response);
    else this.#requestedOnce.set(request.url, true);
  }
}

function isUncached({ headers }: FastifyRequest): boolean {
  return headers['cache-control'] === 'no-cache';
}

export async function sendResponse(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { version, bytes, compressed }: Response,
  coding: ContentCoding | undefined,
): Promise<void> {
  const etag = version === null ? undefined : `W/"${version}"`;
  const known = headers['if-none-match'];
  if (etag !== undefined && (known === '*' || known?.includes(etag))) {
    return sendBytes(reply, 304, cacheHeaders(etag));
  }
  const sent = [...cacheHeaders(etag), 'Content-Type', 'application/json; charset=utf-8'];
  if (coding === undefined || bytes.length < COMPRESSED_BYTES_MIN) return sendBytes(reply, 200, sent, bytes);
  const body = compressed.get(coding) ?? (await COMPRESS[coding](bytes));
  compressed.set(coding, body);
  sendBytes(reply, 200, [...sent, 'Content-Encoding', coding], body);
}

/** Caches must revalidate, and may not share the response: it is for callers who may read the project. */
function cacheHeaders(etag: string | undefined): string[] {
  const vary = ['Vary', 'Accept-Encoding'];
  return etag === undefined ? vary : [...vary, 'ETag', etag, 'Cache-Control', 'private, no-cache'];
}
