/** Forgetting: the horizon moves first, in one transaction for all; then the space is freed in small steps. */
import type { Retention } from '../store.ts';
import { forgetBatch, keepBatch, linksAfter } from './append.ts';
import { LEVELS } from './levels.ts';
import { cellsKey, countChange, metaValue, type Schema } from './schema.ts';

const DAY_MS = 86_400_000;

/** About 10 ms of work: queries and appends wait no longer than that for a step. */
const RECORDS_PER_STEP = 2_000;

/** The steps of a prune, each to be run in a write transaction of its own. */
export function* pruneSteps(schema: Schema, before: number, freeBefore: number): Generator<() => void> {
  yield () => {
    if (before <= metaValue(schema, 'horizon')) return;
    schema.meta.putSync('freed', freedBefore(schema));
    schema.meta.putSync('horizon', before);
    countChange(schema);
  };
  const freed = Math.min(freeBefore, Math.max(before, metaValue(schema, 'horizon')));
  // Before anything is freed, so that the horizon is never set back to where something is missing.
  yield () => {
    if (freed > freedBefore(schema)) schema.meta.putSync('freed', freed);
  };
  for (const level of LEVELS) {
    // Only chunks that lie before the horizon as a whole; of the one that it cuts, queries count the later part.
    const behind = Math.max(0, Math.floor(freed / (level.cellMs * level.cellsPerChunk)));
    yield* batchSteps(
      () =>
        schema.cells.getKeys({
          start: cellsKey(level.id, 0, 0),
          end: cellsKey(level.id, behind, 0),
          limit: RECORDS_PER_STEP,
        }),
      (key) => schema.cells.removeSync(key),
    );
  }
  const day = Math.floor(freed / DAY_MS);
  yield* batchSteps(
    () => schema.batchDays.getKeys({ start: [0], end: [day], limit: RECORDS_PER_STEP }),
    ([, source, id]) => {
      // A trail is read from its start: what has something behind it is kept until that is forgotten.
      const isLast = linksAfter(schema, source, id).length === 0;
      if (isLast) forgetBatch(schema, source, id);
      else keepBatch(schema, source, id, day);
    },
  );
}

/** Files from before this was noted have freed everything up to the horizon. */
export function freedBefore(schema: Schema): number {
  return schema.meta.get('freed') ?? metaValue(schema, 'horizon');
}

export function readRetention(schema: Schema): Retention {
  const latest = [...schema.projects.getRange()].map(({ value }) => value.latest);
  const newestEvent = latest.reduce((newest, time) => Math.max(newest, time), 0);
  return {
    horizon: metaValue(schema, 'horizon'),
    freedBefore: freedBefore(schema),
    newestEvent: newestEvent === 0 ? null : newestEvent,
    note: schema.notes.get('retention') ?? null,
  };
}

export function restoreHorizon(schema: Schema, to: number): number {
  const horizon = Math.min(metaValue(schema, 'horizon'), Math.max(to, freedBefore(schema)));
  schema.meta.putSync('freed', freedBefore(schema));
  schema.meta.putSync('horizon', horizon);
  countChange(schema);
  return horizon;
}

/** Steps until nothing is left to remove. */
function* batchSteps<K>(next: () => Iterable<K>, remove: (key: K) => void): Generator<() => void> {
  let removed = RECORDS_PER_STEP;
  while (removed === RECORDS_PER_STEP) {
    yield () => {
      const keys = [...next()];
      for (const key of keys) remove(key);
      removed = keys.length;
    };
  }
}
