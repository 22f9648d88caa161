import type { Answer } from './answer.ts';

/** Too many requests, and a store that does not answer: the two that pass by themselves. */
const RETRIED: readonly number[] = [429, 503];

/** Attempts of one call. A server still unwell after three waits needs fewer requests, not more. */
export const ATTEMPTS_MAX = 4;

/** Before the second attempt; it doubles with each one. */
export const BACKOFF_MS_FIRST = 500;

/** Whoever is told to wait longer than a minute is better told than kept waiting. */
export const RETRY_AFTER_MS_MAX = 60_000;

/** How long to wait before the next attempt, or undefined when there should be none. */
export function retryDelay_ms(
  answer: Answer,
  attempt: number,
  now: () => number,
  random: () => number,
): number | undefined {
  if (!RETRIED.includes(answer.status) || attempt >= ATTEMPTS_MAX) return undefined;
  const asked_ms = retryAfter_ms(answer.headers.get('Retry-After'), now);
  if (asked_ms !== undefined && asked_ms > RETRY_AFTER_MS_MAX) return undefined;
  const half_ms = (BACKOFF_MS_FIRST * 2 ** (attempt - 1)) / 2;
  // Never before the time the server named; and the random part keeps clients that failed together apart.
  return (asked_ms ?? half_ms) + random() * half_ms;
}

/** Seconds, as our server says it, or a date, as some proxies do. */
function retryAfter_ms(value: string | null, now: () => number): number | undefined {
  if (value === null) return undefined;
  const wait_ms = /^[0-9]+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now();
  return Number.isNaN(wait_ms) ? undefined : Math.max(0, wait_ms);
}
