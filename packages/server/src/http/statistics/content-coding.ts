/** Content negotiation: which compression a client accepts, from `Accept-Encoding`. */
import Negotiator from 'negotiator';

export type ContentCoding = 'br' | 'gzip';

/** Clients send a handful of different headers; beyond this many the cache starts over, so that it stays small. */
const CACHED_HEADERS_MAX = 100;
/** Longer headers are parsed each time: no real client sends one. */
const CACHED_HEADER_LENGTH_MAX = 200;

/** Brotli before gzip where the client has no preference; undefined for an uncompressed response. */
export function createNegotiation(): (acceptEncoding: string | undefined) => ContentCoding | undefined {
  const cache = new Map<string, ContentCoding | undefined>();
  return (header) => {
    if (header === undefined) return undefined;
    if (cache.has(header)) return cache.get(header);
    const coding = negotiate(header);
    if (header.length <= CACHED_HEADER_LENGTH_MAX) {
      if (cache.size >= CACHED_HEADERS_MAX) cache.clear();
      cache.set(header, coding);
    }
    return coding;
  };
}

/** Its published types lack the second parameter. */
interface EncodingNegotiator {
  encoding(available: readonly string[], options: { preferred: readonly string[] }): string | undefined;
}

function negotiate(header: string): ContentCoding | undefined {
  const negotiator = new Negotiator({ headers: { 'accept-encoding': header } }) as EncodingNegotiator;
  const coding = negotiator.encoding(['br', 'gzip', 'identity'], { preferred: ['br', 'gzip'] });
  return coding === 'br' || coding === 'gzip' ? coding : undefined;
}
