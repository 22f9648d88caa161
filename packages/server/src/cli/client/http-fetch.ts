/**
 * `fetch` on top of node:http. The built-in `fetch` of Node.js compiles WebAssembly before its first response, which takes
 * 130 ms of CPU time: longer than the rest of a command (bench/start-up.mjs).
 */
import http, { type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip } from 'node:zlib';

const DECODERS: Readonly<Record<string, (bytes: Buffer) => Promise<Buffer>>> = {
  br: promisify(brotliDecompress),
  gzip: promisify(gunzip),
};

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
): Promise<Response> {
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
    const bytes = await buffer(response);
    const decode = DECODERS[response.headers['content-encoding'] ?? ''];
    return responseOf(response, decode ? await decode(bytes) : bytes);
  } catch (error) {
    throw new TypeError('fetch failed', { cause: error });
  }
}

function responseOf({ statusCode = 0, headersDistinct }: IncomingMessage, bytes: Buffer): Response {
  const headers = new Headers();
  for (const [name, values = []] of Object.entries(headersDistinct)) {
    for (const value of values) headers.append(name, value);
  }
  return new Response(bytes.length === 0 ? null : new Uint8Array(bytes), { status: statusCode, headers });
}
