/** Log sources that usually send, and have stopped. */
import type { Source } from '../store/store.ts';
import { DAY_MS } from './grid.ts';

const HOUR_MS = DAY_MS / 24;

/** Shorter pauses are usual: logs are rotated, services restart. */
const SILENCE_MS_MIN = HOUR_MS / 4;
/** A pause as long as this many usual intervals between two events is no chance, even at night. */
const INTERVALS_MIN = 50;
/** A log that is read once a day is silent all day: this many of its usual gaps are too long. */
const GAPS_MIN = 2;
/** A source with less history has no usual interval. */
const HISTORY_MS_MIN = 6 * HOUR_MS;
/** A source that has sent nothing for longer has been removed. */
const SILENCE_MS_MAX = 7 * DAY_MS;

type Seen = Pick<Source, 'events' | 'first_seen' | 'last_seen' | 'last_batch' | 'usual_gap_ms'>;

/** Those that are silent at a time, the latest to stop first. */
export function silentSources<S extends Seen>(
  sources: readonly S[],
  now: number,
): (S & { last_seen: number })[] {
  return sources
    .filter((source): source is S & { last_seen: number } => isSilent(source, now))
    .sort((a, b) => b.last_seen - a.last_seen);
}

function isSilent(source: Seen, now: number): boolean {
  const { events, first_seen, last_seen, last_batch, usual_gap_ms } = source;
  if (first_seen === null || last_seen === null) return false;
  const [historyMs, silenceMs] = [last_seen - first_seen, now - last_seen];
  const usualMs = Math.max(SILENCE_MS_MIN, (INTERVALS_MIN * historyMs) / events);
  if (now - (last_batch ?? last_seen) < GAPS_MIN * usual_gap_ms) return false;
  return historyMs >= HISTORY_MS_MIN && silenceMs >= usualMs && silenceMs <= SILENCE_MS_MAX;
}
