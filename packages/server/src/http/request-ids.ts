import { randomBytes } from 'node:crypto';

/** IDs that no two processes share: a random beginning, then a count. */
export function requestIds(): () => string {
  const start = randomBytes(8).toString('hex');
  let count = 0;
  return () => `${start}${(++count).toString(16).padStart(16, '0')}`;
}
