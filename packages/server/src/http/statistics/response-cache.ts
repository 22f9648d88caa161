/** Response cache of the statistics queries: ETag per data version, compression, reuse of repeated queries. */
import { hash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { BoundedCache, cacheShare } from '../../cache.ts';
import { timed } from '../../diagnostics.ts';
import { type Range, rangeWarning } from '../../statistics/range.ts';
import { type ContentCoding, compress, contentCoding, sendBytes } from '../send.ts';
import type { Trace } from './trace.ts';

/** The memory of the objects around the bytes of a response. */
const RESPONSE_BYTES = 1_024;
/** Remembers most URLs for half a minute if 1,000 new ones arrive per second. */
const REQUESTED_HASHES = 65_536;
/** A smaller response fits into one network packet either way. */
const COMPRESSED_BYTES_MIN = 1_400;

export interface Response {
  /** Null if the store does not know the version of the range. */
  etag: string | null;
  /** A string is ASCII. */
  body: Buffer | string;
  /** The value of the header `Warning`, if there is one. */
  warning?: string;
  notes?: Notes;
  compressed: { [coding in ContentCoding]?: Buffer };
}

/** What a response says in its headers. */
export interface Notes {
  /** How many attacks are kept of how many that were counted, if some are missing. */
  kept?: string;
  /** What was counted, if that is more than the range. */
  covered?: Range;
}

interface ProjectRange extends Range {
  project: string;
}

/** `version`: that of the counts in the range. */
type RangeResponse = Response & ProjectRange & { version: string | null };

/**
 * A response that depends only on the counts of a range. Versions depend on the changes of all projects, so the `ETag` is a
 * hash: nobody can tell from it how many changes there were, or whether another range has any.
 */
export function rangeResponse(
  { project, from, to }: ProjectRange,
  version: string | null,
  content: object | string,
  notes?: Notes,
): RangeResponse {
  const etag = version === null ? null : etagOf(`${project} ${from} ${to} ${version}`);
  return {
    project,
    from,
    to,
    version,
    etag,
    body: bodyOf(content),
    compressed: {},
    ...(notes && { notes }),
    ...warningOf({ from, to }),
  };
}

/** A response that depends on more than the counts of a range, for example on host names or on the time. */
export function contentResponse(content: object | string, range?: Range, notes?: Notes): Response {
  const body = bodyOf(content);
  const parts = { ...(notes && { notes }), ...(range && warningOf(range)) };
  return { etag: etagOf(body), body, compressed: {}, ...parts };
}

function warningOf(range: Range): Pick<Response, 'warning'> {
  const text = rangeWarning(range);
  return text === null ? {} : { warning: `299 - "${text}"` };
}

/** 132 bits. */
function etagOf(hashed: Buffer | string): string {
  return `W/"${hash('sha256', hashed, 'base64url').slice(0, 22)}"`;
}

/** Strings and buffers are JSON already. */
function bodyOf(content: object | string): Buffer | string {
  if (typeof content === 'string' || Buffer.isBuffer(content)) return content;
  return Buffer.from(JSON.stringify(content));
}

export class ResponseCache {
  /** By default, about 90 timelines of a day by minute, with room for their compressed forms. */
  readonly #responses: BoundedCache<string, RangeResponse>;

  /**
   * Hashes of URLs that were requested. Most ranges end now and are never requested again: keeping every response would
   * double its processor time. Collisions of hashes do no harm.
   */
  readonly #requested = new Uint32Array(REQUESTED_HASHES);

  constructor(cacheBytes: number) {
    const weightMax = cacheShare('responses', cacheBytes);
    this.#responses = new BoundedCache({
      name: 'responses',
      entriesMax: Math.ceil(weightMax / RESPONSE_BYTES),
      weightMax,
      // Both compressed forms are far smaller than the bytes.
      weight: ({ body }, url) => RESPONSE_BYTES + url.length + body.length * 1.5,
    });
  }

  /** The response to a request for the same URL. It is current if the version of its range is the same. */
  get(request: FastifyRequest): RangeResponse | undefined {
    return isUncached(request) ? undefined : this.#responses.get(request.url);
  }

  /** Keeps the response if the URL was requested before. */
  set(request: FastifyRequest, response: RangeResponse): void {
    if (isUncached(request) || response.version === null) return;
    if (this.#isRequestedAgain(request.url)) this.#responses.set(request.url, response);
  }

  #isRequestedAgain(url: string): boolean {
    const hash = hashOf(url);
    const slot = hash % REQUESTED_HASHES;
    const isKnown = this.#requested[slot] === hash;
    this.#requested[slot] = hash;
    return isKnown;
  }
}

/** FNV-1a. */
function hashOf(url: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < url.length; i++) hash = Math.imul(hash ^ url.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

function isUncached({ headers }: FastifyRequest): boolean {
  return headers['cache-control'] === 'no-cache';
}

/** A 304 if the client has the response. The compressed form is kept with it. */
export async function sendResponse(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { etag, body, compressed, warning, notes }: Response,
  trace?: Trace,
): Promise<void> {
  const known = headers['if-none-match'];
  if (etag !== null && known !== undefined && isListed(etag, known)) {
    return sendBytes(reply, 304, [...cacheHeaders(etag), ...timingOf(trace)]);
  }
  const sent = [...cacheHeaders(etag), 'Content-Type', 'application/json; charset=utf-8'];
  if (warning !== undefined) sent.push('Warning', warning);
  if (notes?.kept !== undefined) sent.push('X-Wafstat-Kept', notes.kept);
  if (notes?.covered !== undefined)
    sent.push('X-Wafstat-From', String(notes.covered.from), 'X-Wafstat-To', String(notes.covered.to));
  const coding = body.length < COMPRESSED_BYTES_MIN ? undefined : contentCoding(headers['accept-encoding']);
  if (coding === undefined) return sendBytes(reply, 200, [...sent, ...timingOf(trace)], body);
  compressed[coding] ??= await timed('compress', () => compress(coding, body));
  sendBytes(reply, 200, [...sent, 'Content-Encoding', coding, ...timingOf(trace)], compressed[coding]);
}

function timingOf(trace: Trace | undefined): string[] {
  return trace?.isRequested ? ['Server-Timing', trace.serverTiming] : [];
}

/** The weak comparison of HTTP: with or without `W/`. */
function isListed(etag: string, header: string): boolean {
  return header.split(',').some((listed) => {
    const tag = listed.trim();
    return tag === '*' || tag === etag || `W/${tag}` === etag;
  });
}

/** Caches must revalidate, and may not share the response: it is for callers who may read the project. */
function cacheHeaders(etag: string | null): string[] {
  const vary = ['Vary', 'Accept-Encoding'];
  return etag === null ? vary : [...vary, 'ETag', etag, 'Cache-Control', 'private, no-cache'];
}
