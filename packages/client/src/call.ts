import { unlessAborted } from './abort.ts';
import { type Answer, errorOf } from './answer.ts';
import type { Authorize, OutgoingRequest } from './authorize.ts';
import { retryDelay_ms } from './retry.ts';
import { type Fetch, send } from './send.ts';

export interface Transport {
  authorize: Authorize;
  fetch: Fetch;
  now: () => number;
  sleep: (time_ms: number, signal?: AbortSignal) => Promise<void>;
  random: () => number;
}

/** Gets the answer with status 200. Repeating is safe, because every call of the API only reads. */
export async function call(url: string, transport: Transport, signal?: AbortSignal): Promise<Answer> {
  const { authorize, fetch, now, sleep, random } = transport;
  let attempt = 1;
  let renewed = false;
  for (;;) {
    signal?.throwIfAborted();
    const request: OutgoingRequest = { method: 'GET', url, headers: { Accept: 'application/json' } };
    const authorization = await unlessAborted(authorize(request), signal);
    const answer = await send(
      fetch,
      { ...request, headers: { ...request.headers, ...authorization } },
      signal,
    );
    if (answer.status === 200) return answer;
    if (answer.status === 401 && authorize.refused !== undefined && !renewed) {
      renewed = true;
      authorize.refused(authorization);
      continue;
    }
    const delay_ms = retryDelay_ms(answer, attempt, now, random);
    if (delay_ms === undefined) throw errorOf(answer);
    await sleep(delay_ms, signal);
    attempt++;
  }
}
