/** A bucket for each caller: it fills steadily up to one second's worth, and each request takes one out. */
import { ApiError } from '../../errors.ts';

/** Callers are known users, so this is never reached in practice; it bounds the memory all the same. */
const BUCKETS_MAX = 10_000;

export type RateLimit = (caller: string) => void;

/** `per_second` 0: no limit. The returned function throws when the caller is over it. */
export function createRateLimit(per_second: number, now: () => number): RateLimit {
  const buckets = new Map<string, { tokens: number; at: number }>();
  return (caller) => {
    if (per_second === 0) return;
    const time = now();
    const bucket = buckets.get(caller) ?? { tokens: per_second, at: time };
    bucket.tokens = Math.min(per_second, bucket.tokens + ((time - bucket.at) / 1_000) * per_second);
    bucket.at = time;
    if (buckets.size >= BUCKETS_MAX) buckets.clear();
    buckets.set(caller, bucket);
    if (bucket.tokens < 1) {
      const wait_s = Math.max(1, Math.ceil((1 - bucket.tokens) / per_second));
      throw new ApiError(
        'WAF.3004',
        `more than ${per_second} requests per second: try again in ${wait_s} s`,
        {
          'Retry-After': String(wait_s),
        },
      );
    }
    bucket.tokens -= 1;
  };
}
