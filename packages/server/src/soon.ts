/** Known at once where it can be, and a promise only where someone must be waited for: most requests need none (0012). */
export type Soon<T> = T | Promise<T>;

export function whenKnown<T, U>(answer: Soon<T>, action: (value: T) => Soon<U>): Soon<U> {
  return answer instanceof Promise ? answer.then(action) : action(answer);
}
