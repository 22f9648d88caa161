/** Keeps `process.nextTick` fast, which Node.js calls about eight times per request. */
import { executionAsyncResource } from 'node:async_hooks';

const kept: object[] = [];

/**
 * Keeps one of the objects that `process.nextTick` creates. If a garbage collection finds none of them, V8 forgets their shape,
 * and from then on every call takes 0.8 us instead of 0.1: 5% of a computed response. Call it at the start.
 */
export function keepTickShape(): void {
  process.nextTick(() => void kept.push(executionAsyncResource()));
}
