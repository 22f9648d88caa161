/**
 * `fetch` on top of node:http. The built-in `fetch` of Node.js compiles WebAssembly before its first response, which takes
 * 130 ms of CPU time: longer than the rest of a command (bench/start-up.mjs).
 */
import http, { type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';

/** What client commands use of Response, and the bytes of the body. A real Response loads all of `fetch`: 25 ms. */
export interface HttpResponse extends Pick<Response, 'status' | 'text' | 'type'> {
  headers: Pick<Headers, 'get'>;
  bytes: Uint8Array;
}

/** What client commands use of RequestInit. Redirects are not followed. */
export interface HttpRequest {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  signal?: AbortSignal;
}

export async function httpFetch(
  url: string,
  { method = 'GET', headers, body, signal }: HttpRequest,
): Promise<HttpResponse> {
  try {
    const { request } = url.startsWith('https:') ? await import('node:https') : http;
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const options = {
        method,
        headers: { ...headers, 'Accept-Encoding': 'br, gzip' },
        ...(signal && { signal }),
      };
      request(url, options, resolve).on('error', reject).end(body);
    });
    const bytes = await decoded(await buffer(response), response.headers['content-encoding']);
    const { statusCode: status = 0, headersDistinct } = response;
    return {
      status,
      type: 'basic',
      headers: { get: (name) => headersDistinct[name.toLowerCase()]?.join(', ') ?? null },
      bytes,
      text: async () => new TextDecoder().decode(bytes),
    };
  } catch (error) {
    throw new TypeError('fetch failed', { cause: error });
  }
}

/** Most responses are short, and not compressed. */
async function decoded(bytes: Buffer, coding: string | undefined): Promise<Buffer> {
  if (coding !== 'br' && coding !== 'gzip') return bytes;
  const { brotliDecompressSync, gunzipSync } = await import('node:zlib');
  return coding === 'br' ? brotliDecompressSync(bytes) : gunzipSync(bytes);
}
