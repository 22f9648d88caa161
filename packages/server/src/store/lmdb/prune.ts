/** Retention: the horizon moves first, in one transaction; then the space is freed in small steps. */
import { dayOf, type PruneOptions, type Retention } from '../store.ts';
import { deleteBatch, idsAfter, keepBatchUntil } from './append.ts';
import { LEVELS } from './levels.ts';
import { cellsKey, countChange, metaValue, type Schema } from './schema.ts';
import { pruneTopListsSteps } from './top-lists.ts';

/** About 10 ms of work: queries and appends wait no longer than that for a step. */
const RECORDS_PER_STEP = 2_000;

/** The steps of a prune, each for a separate write transaction. */
export function* pruneSteps(
  schema: Schema,
  before: number,
  { freeBefore = before, topListsBefore = before }: PruneOptions,
): Generator<() => void> {
  yield () => {
    if (before <= metaValue(schema, 'horizon')) return;
    schema.meta.putSync('freed', freedBefore(schema));
    schema.meta.putSync('horizon', before);
    countChange(schema);
  };
  const freed = Math.min(freeBefore, Math.max(before, metaValue(schema, 'horizon')));
  // Stored before anything is freed, so that the horizon never moves back to where data is missing.
  yield () => {
    if (freed > freedBefore(schema)) schema.meta.putSync('freed', freed);
  };
  for (const level of LEVELS) {
    // Only whole chunks: queries still count a part of the chunk that the limit cuts.
    const end = Math.max(0, Math.floor(freed / (level.cellMs * level.cellsPerChunk)));
    const range = {
      start: cellsKey(level.id, 0, 0),
      end: cellsKey(level.id, end, 0),
      limit: RECORDS_PER_STEP,
    };
    yield* removeSteps(
      () => schema.cells.getKeys(range),
      (key) => schema.cells.removeSync(key),
    );
  }
  yield* pruneTopListsSteps(schema, topListsBefore, freed);
  const day = dayOf(freed);
  yield* removeSteps(
    () => schema.batchDays.getKeys({ start: [0], end: [day], limit: RECORDS_PER_STEP }),
    ([, source, id]) => {
      // Links are read from the start of a file: a batch is kept as long as another one follows it.
      const isLast = idsAfter(schema, source, id).length === 0;
      if (isLast) deleteBatch(schema, source, id);
      else keepBatchUntil(schema, source, id, day);
    },
  );
}

/** Files of releases that did not store this have freed everything before the horizon. */
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

/** Removes keys in steps until none is left. */
function* removeSteps<K>(next: () => Iterable<K>, remove: (key: K) => void): Generator<() => void> {
  let removed = RECORDS_PER_STEP;
  while (removed === RECORDS_PER_STEP) {
    yield () => {
      const keys = [...next()];
      for (const key of keys) remove(key);
      removed = keys.length;
    };
  }
}
