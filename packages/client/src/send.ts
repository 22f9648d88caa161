import { type Answer, field } from './answer.ts';
import { WafstatError } from './error.ts';

export type Fetch = typeof fetch;

export interface Sendable {
  method: 'GET' | 'POST';
  url: string;
  headers: Readonly<Record<string, string>>;
  body?: string;
}

/** The longest query of a busy project takes seconds. What takes longer than a minute does not come any more. */
export const ANSWER_MS_MAX = 60_000;

/** One request, one whole answer. Rejects with a WafstatError, or with the reason of the signal. */
export async function send(fetch: Fetch, request: Sendable, signal?: AbortSignal): Promise<Answer> {
  const { url, ...init } = request;
  const source = `${request.method} ${url.replace(/\?.*/s, '')}`;
  const deadline = deadlineOf(source, signal);
  try {
    // A redirect would carry the token or the password on to wherever it points; the API has none.
    const response = await fetch(url, { ...init, redirect: 'error', signal: deadline.signal });
    return { source, status: response.status, headers: response.headers, body: await response.text() };
  } catch (failure) {
    deadline.signal.throwIfAborted();
    throw new WafstatError(`${source} got no answer: ${reasonOf(failure)}.`, {}, { cause: failure });
  } finally {
    deadline.clear();
  }
}

/** Aborts when the caller does, or when it is too late. (AbortSignal.any is not in every Node.js 20.) */
function deadlineOf(source: string, signal: AbortSignal | undefined) {
  const controller = new AbortController();
  const follow = () => controller.abort(signal?.reason);
  if (signal?.aborted) follow();
  signal?.addEventListener('abort', follow);
  const timer = setTimeout(() => {
    controller.abort(new WafstatError(`${source} got no answer within ${ANSWER_MS_MAX / 1000} seconds.`));
  }, ANSWER_MS_MAX);
  const clear = () => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', follow);
  };
  return { signal: controller.signal, clear };
}

/** Node.js says `fetch failed` and hides what failed in the cause; browsers say it at once. */
function reasonOf(failure: unknown): string {
  const cause = field(failure, 'cause');
  return String(field(cause, 'message') || field(cause, 'code') || field(failure, 'message') || failure);
}
