/** Whether anything has changed in a range of time: told by the counts of changes of the chunks that it touches. */
import { createHash } from 'node:crypto';
import { type PerTurnMemo, VersionedCache } from '../../cache.ts';
import { COUNTERS } from './levels.ts';
import { changesOf, metaValue, type Schema } from './schema.ts';

/** Every change is counted at every level, so any level tells. The finer, the less of the time around it matters. */
const CHUNKS_MAX = 16;

export function createVersions(
  schema: Schema,
  changes: PerTurnMemo<number>,
): (from: number, to: number) => string {
  const known = new VersionedCache<number, { from: number; to: number; version: string }>(() =>
    changes.get(),
  );
  return (from, to) => {
    // A number, because a text of both takes longer to make than to find. Few ranges share one.
    const key = from + 3 * to;
    let found = known.get(key);
    if (found?.from !== from || found.to !== to) {
      found = { from, to, version: versionOf(schema, from, to) };
      known.set(key, found);
    }
    return found.version;
  };
}

function versionOf(schema: Schema, from: number, to: number): string {
  const chunk_ms = ({ cellMs, cellsPerChunk }: (typeof COUNTERS)[number]) => cellMs * cellsPerChunk;
  const level = COUNTERS.findLast((one) => to - from <= CHUNKS_MAX * chunk_ms(one)) ?? COUNTERS[0];
  const horizon = metaValue(schema, 'horizon');
  const hash = createHash('sha256').update(`${metaValue(schema, 'born')} ${horizon > from ? horizon : ''}`);
  if (level !== undefined) {
    const behind = Math.ceil(to / chunk_ms(level));
    for (let chunk = Math.floor(from / chunk_ms(level)); chunk < behind; chunk++) {
      hash.update(` ${changesOf(schema.cells, level.id, chunk) ?? 0}`);
    }
  }
  return hash.digest('base64url').slice(0, 22);
}
