/** Settles as `work` does, unless the signal is first. For work that others wait for too, and that must go on. */
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

/** Waits, and leaves no timer behind when the signal ends the wait. */
export async function sleep(time_ms: number, signal?: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const elapsed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, time_ms);
  });
  return unlessAborted(elapsed, signal).finally(() => clearTimeout(timer));
}
