/** Loads data, refreshes it, and runs changes. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { useApp } from './app.ts';
import { isTemporary, sentence } from './parts/states.tsx';

export const REFRESH_MS = 5_000;

export interface Query<T> {
  /** Null: not loaded yet, or the load of this key failed. Data of the previous key stays while the new one loads. */
  data: T | null;
  /** Why the latest load failed. With data of the same key, a refresh failed and is tried again. */
  failure: unknown;
  /** The data is not of this key, or there is none yet. */
  isLoading: boolean;
  /** When the data was loaded, by the clock of the service. */
  updatedAt: number | null;
  reload(): void;
}

export interface QueryOptions {
  /** Loads again every `refreshMs`, while the page is visible. */
  refresh?: boolean;
  refreshMs?: number;
  /** Does not load yet: something more important is loading. */
  wait?: boolean;
}

interface State<T> {
  key: string | null;
  data: T | null;
  failure: unknown;
  updatedAt: number | null;
}

/**
 * `key` identifies what `read` loads: another key loads again and aborts the load before. `read` gets the latest data of the
 * key. What failed for now is tried again every few seconds.
 */
export function useQuery<T>(
  key: string,
  read: (signal: AbortSignal, latest: T | null) => Promise<T>,
  { refresh = false, refreshMs = REFRESH_MS, wait = false }: QueryOptions = {},
): Query<T> {
  const app = useApp();
  const [state, setState] = useState<State<T>>({ key: null, data: null, failure: null, updatedAt: null });
  const current = useRef({ read, app, latest: state.data });
  current.current = { read, app, latest: state.key === key ? state.data : null };
  const running = useRef<AbortController | null>(null);

  async function load(): Promise<void> {
    running.current?.abort();
    const aborter = new AbortController();
    running.current = aborter;
    try {
      const data = await current.current.read(aborter.signal, current.current.latest);
      if (!aborter.signal.aborted)
        setState({ key, data, failure: null, updatedAt: current.current.app.now() });
    } catch (failure) {
      if (aborter.signal.aborted || current.current.app.handleSignedOut(failure)) return;
      // Old numbers must not look like those of the new key.
      setState((old) =>
        old.key === key ? { ...old, failure } : { key, data: null, failure, updatedAt: null },
      );
    } finally {
      if (running.current === aborter) running.current = null;
    }
  }

  useEffect(() => {
    if (wait) return;
    void load();
    return () => running.current?.abort();
  }, [key, wait]);
  const { data, failure, updatedAt } = state;
  const isLoading = state.key !== key;
  const hasFailed = !isLoading && isTemporary(failure);
  useEffect(() => {
    if (wait || !(refresh || hasFailed)) return;
    const timer = setInterval(
      () => {
        if (!document.hidden && running.current === null) void load();
      },
      hasFailed ? REFRESH_MS : refreshMs,
    );
    return () => clearInterval(timer);
  }, [refresh, refreshMs, key, wait, hasFailed]);
  return { data, failure: isLoading ? null : failure, isLoading, updatedAt, reload: () => void load() };
}

export interface Action {
  /** Runs the change, and keeps the error message if it fails. Returns whether it succeeded. */
  run(change: () => Promise<unknown>): Promise<boolean>;
  problem: string;
  isRunning: boolean;
}

export function useAction(): Action {
  const app = useApp();
  const [problem, setProblem] = useState('');
  const [isRunning, setRunning] = useState(false);
  async function run(change: () => Promise<unknown>): Promise<boolean> {
    setProblem('');
    setRunning(true);
    try {
      await change();
      return true;
    } catch (failure) {
      if (!app.handleSignedOut(failure)) setProblem(sentence(failure));
      return false;
    } finally {
      setRunning(false);
    }
  }
  return { run, problem, isRunning };
}
