/** One call of the API: authorization, timeout, retries, and errors with the message of the service. */
import type { Authorizer, RequestHeaders } from './credentials.ts';

/** The call failed: the service rejected it, its response was invalid, or there was no response. */
export class WafstatError extends Error {
  /** The HTTP status. Undefined if there was no response. */
  readonly status: number | undefined;
  /** The error code of the API, such as `WAF.1025`. Undefined if the response had none. */
  readonly errorCode: string | undefined;
  /** Identifies the request in the log of the service. Undefined if the response had none. */
  readonly requestId: string | undefined;

  constructor(message: string, origin: ErrorOrigin = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = 'WafstatError';
    this.status = origin.status;
    this.errorCode = origin.errorCode;
    this.requestId = origin.requestId;
  }
}

type ErrorOrigin = Partial<Pick<WafstatError, 'status' | 'errorCode' | 'requestId'>>;

/** The connection failed, and may work the next time. */
class ConnectionError extends WafstatError {}

/** What the client uses of a `Response`. */
interface FetchResponse extends Pick<Response, 'status' | 'text' | 'type'> {
  headers: Pick<Headers, 'get'>;
}
/** The global `fetch`, or a function that can replace it here. */
export type Fetch = (url: string, init: RequestInit) => Promise<FetchResponse>;
export type Chunks = AsyncIterable<string | Uint8Array>;

export interface ApiRequest {
  method: 'GET' | 'POST' | 'DELETE';
  url: string;
  headers: RequestHeaders;
  /** A function opens the body again for every attempt. */
  body?: string | Uint8Array | (() => Chunks) | undefined;
  /** The request is idempotent, and its body can be sent again. */
  isRepeatable: boolean;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

export interface ApiResponse {
  /** Method and URL without the query, for error messages. */
  source: string;
  status: number;
  headers: FetchResponse['headers'];
  body: string;
}

export interface Timing {
  /** Milliseconds since the epoch. */
  now: () => number;
  sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** From 0 to 1. */
  random: () => number;
}

export interface Transport {
  authorizer: Authorizer;
  fetch: Fetch;
  timing: Timing;
  maxRetries: number;
}

/** Too many requests, and failures of a proxy or the store that pass by themselves. */
const RETRIED: readonly number[] = [429, 502, 503, 504];
/** The longest wait before the first retry. Doubles with each one. */
const BACKOFF_MS_FIRST = 500;
/** If the service demands a longer wait, the caller should know. */
const RETRY_AFTER_MS_MAX = 60_000;

/** Resolves to the response with status 200. */
export async function call(request: ApiRequest, transport: Transport): Promise<ApiResponse> {
  const { method, url, headers, body, isRepeatable, signal } = request;
  const { authorizer, fetch, timing } = transport;
  const maxRetries = isRepeatable ? transport.maxRetries : 0;
  let canRenew = isRepeatable;
  for (let retries = 0; ; ) {
    signal?.throwIfAborted();
    const outgoing = { method, url, headers, body: typeof body === 'function' ? undefined : body };
    // Every attempt has its own authorization, because a signature has a date.
    const authorization = await unlessAborted(authorizer.headers(outgoing), signal);
    const outgoingHeaders = { ...headers, ...authorization };
    const outcome = await send(fetch, { ...request, headers: outgoingHeaders }).catch(connectionErrorOnly);
    if (!(outcome instanceof ConnectionError)) {
      if (outcome.status === 200 || outcome.status === 204) return outcome;
      if (outcome.status === 401) authorizer.rejected?.(authorization);
      if (outcome.status === 401 && authorizer.rejected !== undefined && canRenew) {
        canRenew = false;
        continue;
      }
    }
    const delayMs = retries < maxRetries ? retryDelayMs(outcome, retries, timing) : undefined;
    if (delayMs === undefined) throw outcome instanceof ConnectionError ? outcome : errorOf(outcome);
    await timing.sleep(delayMs, signal);
    retries++;
  }
}

function connectionErrorOnly(error: unknown): ConnectionError {
  if (error instanceof ConnectionError) return error;
  throw error;
}

/** Undefined if a retry makes no sense, or the service demands a wait that is too long. */
function retryDelayMs(
  outcome: ApiResponse | ConnectionError,
  retries: number,
  { now, random }: Timing,
): number | undefined {
  const backoffMs = BACKOFF_MS_FIRST * 2 ** retries;
  let waitMs = backoffMs / 2;
  if (!(outcome instanceof ConnectionError)) {
    if (!RETRIED.includes(outcome.status)) return undefined;
    waitMs = retryAfterMs(outcome.headers.get('Retry-After'), now) ?? waitMs;
    if (waitMs > RETRY_AFTER_MS_MAX) return undefined;
  }
  // The random part spreads clients that failed together.
  return waitMs + (random() * backoffMs) / 2;
}

/** The service sends seconds, some proxies send a date. */
function retryAfterMs(value: string | null, now: () => number): number | undefined {
  if (value === null) return undefined;
  const waitMs = /^[0-9]+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now();
  return Number.isNaN(waitMs) ? undefined : Math.max(0, waitMs);
}

/** Sends one request and reads its whole response. Rejects with a WafstatError or the reason of the signal. */
export async function send(fetch: Fetch, request: Omit<ApiRequest, 'isRepeatable'>): Promise<ApiResponse> {
  const { method, url, headers, body, timeoutMs, signal } = request;
  const source = `${method} ${url.replace(/\?.*/s, '')}`;
  const deadline = deadlineOf(source, timeoutMs, signal);
  const stream = typeof body === 'function' ? streamOf(body()) : undefined;
  const init = {
    method,
    headers,
    // Credentials must not follow a redirect to another server.
    redirect: 'manual',
    signal: deadline.signal,
    ...(body === undefined ? {} : { body: stream?.body ?? body }),
    // The standard requires it for streams; the types lack it.
    ...(stream === undefined ? {} : { duplex: 'half' }),
  } as RequestInit;
  try {
    const response = await fetch(url, init);
    const { status } = response;
    if (response.type === 'opaqueredirect' || (status >= 300 && status < 400)) {
      const message = `${source} was redirected, which is not followed because it could leak credentials. Check the URL of the service.`;
      throw new WafstatError(message, status === 0 ? {} : { status });
    }
    return { source, status, headers: response.headers, body: await response.text() };
  } catch (failure) {
    deadline.signal.throwIfAborted();
    if (failure instanceof WafstatError) throw failure;
    if (stream?.failure !== undefined) throw stream.failure;
    throw new ConnectionError(`${source} got no response: ${reasonOf(failure)}.`, {}, { cause: failure });
  } finally {
    deadline.clear();
    stream?.close();
  }
}

/** Aborts when the caller does, or after the timeout. (AbortSignal.any is missing in Node.js before 20.3.) */
function deadlineOf(source: string, timeoutMs: number, signal: AbortSignal | undefined) {
  const controller = new AbortController();
  const follow = () => controller.abort(signal?.reason);
  if (signal?.aborted) follow();
  signal?.addEventListener('abort', follow);
  const expire = () =>
    controller.abort(new WafstatError(`${source} got no response within ${timeoutMs / 1000} seconds.`));
  // Longer timers fire at once.
  const timer = timeoutMs < 2 ** 31 ? setTimeout(expire, timeoutMs) : undefined;
  const clear = () => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', follow);
  };
  return { signal: controller.signal, clear };
}

/** ReadableStream.from is missing in most browsers. */
function streamOf(chunks: Chunks) {
  const iterator = chunks[Symbol.asyncIterator]();
  const utf8 = new TextEncoder();
  const stream = {
    /** The error of the source, which `fetch` hides. */
    failure: undefined as unknown,
    body: new ReadableStream<Uint8Array>({
      async pull(controller) {
        try {
          const { done, value } = await iterator.next();
          if (done) controller.close();
          else controller.enqueue(typeof value === 'string' ? utf8.encode(value) : value);
        } catch (error) {
          stream.failure = error;
          throw error;
        }
      },
    }),
    /** Closes the source, such as a file, if it was not read to its end: `fetch` leaves it open. */
    close: () => void iterator.return?.().catch(() => {}),
  };
  return stream;
}

/** Node.js says `fetch failed` and puts the reason into the cause. Browsers have no cause. */
function reasonOf(failure: unknown): string {
  const cause = field(failure, 'cause');
  return String(field(cause, 'message') || field(cause, 'code') || field(failure, 'message') || failure);
}

/** The error with the message of the service. The API and the identity service have different error bodies. */
export function errorOf(response: ApiResponse): WafstatError {
  const body = jsonOf(response);
  const message = text(field(body, 'error_msg')) ?? text(field(field(body, 'error'), 'message'));
  const errorCode = text(field(body, 'error_code'));
  const { source, status } = response;
  return unexpected(response, message ?? `${source} returned ${status} without an error message.`, errorCode);
}

/** The error for an invalid response. */
export function unexpected(response: ApiResponse, message: string, errorCode?: string): WafstatError {
  const requestId = response.headers.get('X-Request-Id') ?? undefined;
  return new WafstatError(message, { status: response.status, errorCode, requestId });
}

/** Undefined if the response is not JSON. */
export function jsonOf(response: ApiResponse): unknown {
  try {
    return JSON.parse(response.body);
  } catch {
    return undefined;
  }
}

export function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Settles like `work`, unless the signal aborts first. The work continues, because others may wait for it too. */
export function unlessAborted<T>(work: T | Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return Promise.resolve(work);
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    Promise.resolve(work)
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', abort));
  });
}

/** Leaves no timer when the signal aborts. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const elapsed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return unlessAborted(elapsed, signal).finally(() => clearTimeout(timer));
}
