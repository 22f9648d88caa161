/**
 * `fetch` on top of node:http. The built-in `fetch` of Node.js compiles WebAssembly before its first response, which takes
 * 130 ms of CPU time: longer than the rest of a command (bench/start-up.mjs).
 */
import http, { type IncomingMessage } from 'node:http';

/** The longest response, a page of sources with examples of dropped lines, has 10 MB. A few bytes can expand to gigabytes. */
const RESPONSE_MIB_MAX = 64;
const RESPONSE_BYTES_MAX = RESPONSE_MIB_MAX * 1_048_576;
const TOO_LONG = `the response is longer than ${RESPONSE_MIB_MAX} MiB`;

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
      request(url, options, resolve)
        .on('error', reject)
        .on('upgrade', ({ statusCode }, socket) => {
          socket.destroy();
          reject(new Error(`the server switched protocols (status ${statusCode})`));
        })
        .end(body);
    });
    const bytes = await decoded(await bodyOf(response), response.headers['content-encoding']);
    const { statusCode: status = 0, headersDistinct } = response;
    return {
      status,
      type: 'basic',
      headers: { get: (name) => headersDistinct[name.toLowerCase()]?.join(', ') ?? null },
      bytes,
      text: async () => new TextDecoder().decode(bytes),
    };
  } catch (error) {
    throw new TypeError('fetch failed', { cause: withHint(error as NodeJS.ErrnoException) });
  }
}

/** A name with several addresses gives an error without a message. */
function withHint(error: NodeJS.ErrnoException): Error {
  if (error.code !== 'ECONNREFUSED') return error;
  return new Error(`${error.message || error.code} (is the service running?)`, { cause: error });
}

async function bodyOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > RESPONSE_BYTES_MAX) throw new Error(TOO_LONG);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

/** Most responses are short, and not compressed. */
async function decoded(bytes: Buffer, coding: string | undefined): Promise<Buffer> {
  if (coding !== 'br' && coding !== 'gzip') return bytes;
  const { brotliDecompressSync, gunzipSync } = await import('node:zlib');
  try {
    return (coding === 'br' ? brotliDecompressSync : gunzipSync)(bytes, {
      maxOutputLength: RESPONSE_BYTES_MAX,
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw new Error(TOO_LONG);
    throw error;
  }
}
