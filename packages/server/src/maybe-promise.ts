/** Known at once where it can be, and a promise only where someone must be waited for: most requests need none (0012). */
export type MaybePromise<T> = T | Promise<T>;

export function mapMaybe<T, U>(
  answer: MaybePromise<T>,
  action: (value: T) => MaybePromise<U>,
): MaybePromise<U> {
  return answer instanceof Promise ? answer.then(action) : action(answer);
}
