/**
 * Known at once where it can be, and a promise only where someone must be waited for. Each promise on the way of a request
 * costs about a microsecond, and most requests have nothing to wait for (docs/decisions/0012).
 */
export type Soon<T> = T | Promise<T>;

export function whenKnown<T, U>(answer: Soon<T>, action: (value: T) => Soon<U>): Soon<U> {
  return answer instanceof Promise ? answer.then(action) : action(answer);
}
