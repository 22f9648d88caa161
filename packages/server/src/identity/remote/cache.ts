/** Answers of the identity service, each believed for a bounded time and then asked for again. */
import type { MaybePromise } from '../../maybe-promise.ts';

/** At about 1 KB each: 10 MB for a kind of answer. Past it the oldest are asked for again. */
const KNOWN_MAX = 10_000;
/** Kept apart from the others, so that strangers with made-up tokens cannot drive out those of callers. */
const REFUSED_MAX = 1_000;
/** Long enough to take the force out of a client that tries again and again, short enough for a key made just now. */
const REFUSED_MS_MAX = 5_000;

export interface AnswerCache<T> {
  /** `null` is a refusal. Who asks while another does shares the answer; a failure is remembered by nobody. */
  get(key: string, ask: () => Promise<T | null>): MaybePromise<T | null>;
  /** The next one to ask asks anew. */
  forget(key: string): void;
}

export function createAnswerCache<T>(cacheTtlMs: number, now: () => number): AnswerCache<T> {
  const refused_ms = Math.min(cacheTtlMs, REFUSED_MS_MAX);
  const known = new Map<string, { answer: T; asked: number }>();
  const refused = new Map<string, { asked: number }>();
  const asking = new Map<string, Promise<T | null>>();

  /** A clock that was set back must not make an answer last. */
  const isRecent = (entry: { asked: number } | undefined, ms: number) => {
    const age = entry === undefined ? ms : now() - entry.asked;
    return age >= 0 && age < ms;
  };

  async function askFor(key: string, ask: () => Promise<T | null>): Promise<T | null> {
    // The answer may be as old as the question: what is revoked in between counts from then on.
    const asked = now();
    try {
      const answer = await ask();
      known.delete(key);
      refused.delete(key);
      if (answer === null) put(refused, key, { asked }, REFUSED_MAX);
      else put(known, key, { answer, asked }, KNOWN_MAX);
      return answer;
    } finally {
      asking.delete(key);
    }
  }

  return {
    get(key, ask) {
      const entry = known.get(key);
      if (entry && isRecent(entry, cacheTtlMs)) return entry.answer;
      if (isRecent(refused.get(key), refused_ms)) return null;
      const running = asking.get(key) ?? askFor(key, ask);
      asking.set(key, running);
      return running;
    },
    forget(key) {
      known.delete(key);
    },
  };
}

function put<V>(entries: Map<string, V>, key: string, value: V, entries_max: number): void {
  entries.set(key, value);
  for (const oldest of entries.keys()) {
    if (entries.size <= entries_max) break;
    entries.delete(oldest);
  }
}
