/** Retention: the horizon moves first, in one transaction; then the space is freed in small steps. */

import { reached } from '../../rare-states.ts';
import { dayOf } from '../batches.ts';
import { withoutOldExamples } from '../sources.ts';
import { HOUR_MS, type PruneOptions, type Retention } from '../store.ts';
import { decodeRequest, deleteBatch, idsAfter, keepBatchUntil } from './append.ts';
import { deleteAttacksSteps } from './attacks.ts';
import {
  cellsKey,
  changeAllVersions,
  countChange,
  KEYS_PER_STEP,
  keySteps,
  LEVELS,
  metaValue,
  SCOPES_MAX,
  type Schema,
} from './schema.ts';
import { keptListsFrom, pruneTopListsSteps } from './top-lists.ts';

/** The steps of a prune, each for a separate write transaction. */
export function* pruneSteps(
  schema: Schema,
  before: number,
  { freeBefore = before, topListsBefore = before, expectedHorizon }: PruneOptions,
): Generator<() => void> {
  let freed = 0;
  // What will be freed is stored first, with the horizon of that moment: nobody can move it back to where data is missing.
  yield () => {
    const [oldHorizon, oldFreed] = [metaValue(schema, 'horizon'), metaValue(schema, 'freed')];
    freed = oldFreed;
    if (expectedHorizon !== undefined && expectedHorizon !== oldHorizon) {
      reached('prune.horizon-moved-elsewhere');
      return;
    }
    const horizon = Math.max(oldHorizon, before);
    freed = Math.min(freeBefore, horizon);
    if (horizon === oldHorizon && freed <= oldFreed) return;
    schema.meta.putSync('freed', Math.max(freed, oldFreed));
    schema.meta.putSync('horizon', horizon);
    if (horizon > oldHorizon) countChange(schema);
  };
  for (const level of LEVELS) {
    // Only whole chunks: queries still count a part of the chunk that the limit cuts.
    const end = Math.max(0, Math.floor(freed / (level.cellMs * level.cellsPerChunk)));
    yield* keySteps<Buffer>(
      (start = cellsKey(level.id, 0, 0), limit) =>
        schema.cells.getKeys({ start, end: cellsKey(level.id, end, 0), limit }),
      (keys) => {
        for (const key of keys) schema.cells.removeSync(key);
      },
    );
  }
  yield* deleteExamplesSteps(schema, topListsBefore);
  yield* pruneTopListsSteps(schema, topListsBefore, freed);
  yield* deleteAttacksSteps(schema, Math.ceil(keptListsFrom(schema) / HOUR_MS));
  yield* deleteRequestsSteps(schema, freed);
  yield* deleteBatchSteps(schema, dayOf(freed));
}

/** Deletes flagged requests before a time, of all projects or of one. Each step is for a separate write transaction. */
export function* deleteRequestsSteps(
  schema: Schema,
  before: number,
  projectId?: string,
): Generator<() => void> {
  const range = rangeOf(schema, projectId);
  yield* keySteps<[project: number, generation: number, source: number, key: string]>(
    (start = range.start as never, limit) => schema.requests.getKeys({ ...range, start, limit } as never),
    (keys) => {
      for (const key of keys) {
        const stored = schema.requests.get(key);
        if (stored !== undefined && decodeRequest(stored).time < before) schema.requests.removeSync(key);
      }
    },
  );
}

/** Deletes the examples of all projects or of one. Each step is for a separate write transaction. */
export function* deleteExamplesSteps(
  schema: Schema,
  before: number,
  projectId?: string,
): Generator<() => void> {
  const sources = schema.sources.getRange(rangeOf(schema, projectId) as never);
  const old = [...sources].filter(({ value }) => withoutOldExamples(value, before));
  for (let i = 0; i < old.length; i += KEYS_PER_STEP) {
    yield () => {
      for (const { key } of old.slice(i, i + KEYS_PER_STEP)) {
        const source = schema.sources.get(key);
        const changed = source && withoutOldExamples(source, before);
        if (changed) schema.sources.putSync(key, changed);
      }
    };
  }
}

/** The keys of a project, none if it is unknown, in tables whose keys begin with its scope. Without a project, all keys. */
function rangeOf({ projects }: Schema, projectId: string | undefined): { start: unknown; end: unknown } {
  if (projectId === undefined) return { start: [0], end: [SCOPES_MAX] };
  const scope = projects.get(projectId)?.scope;
  return scope === undefined ? { start: [0], end: [0] } : { start: [scope], end: [scope + 1] };
}

/**
 * Links are followed from the start of a file, so a batch must be kept as long as those after it: it gets the day of the
 * newest of them. Later batches are processed first, so that one prune deletes all batches of an old file.
 */
function* deleteBatchSteps(schema: Schema, day: number): Generator<() => void> {
  const stack: [day: number, source: number, id: string][] = [];
  for (let isDone = false; !isDone; ) {
    yield () => {
      for (let i = 0; i < KEYS_PER_STEP; i++) {
        if (stack.length === 0)
          stack.push(...schema.batchDays.getKeys({ start: [0], end: [day], limit: KEYS_PER_STEP }));
        const top = stack.at(-1);
        if (top === undefined) {
          isDone = true;
          return;
        }
        const [, source, id] = top;
        const dayOfBatch = (each: string) => schema.batches.get([source, each])?.day;
        const next = idsAfter(schema, source, id).flatMap((each) => {
          const nextDay = dayOfBatch(each);
          return nextDay === undefined ? [] : [{ id: each, day: nextDay }];
        });
        const old = next.find((each) => each.day < day);
        if (old) {
          stack.push([old.day, source, old.id]);
          continue;
        }
        stack.pop();
        // It was on the stack twice, and may have been appended again between two steps.
        if (dayOfBatch(id) !== top[0]) schema.batchDays.removeSync(top);
        else if (next.length === 0) deleteBatch(schema, source, id);
        else {
          reached('prune.batch-kept-for-later-ones');
          keepBatchUntil(schema, source, id, Math.max(...next.map((each) => each.day)));
        }
      }
    };
  }
}

export function readRetention(schema: Schema): Retention {
  const latest = [...schema.projects.getRange()].map(({ value }) => value.latest);
  const newestEvent = latest.reduce((newest, time) => Math.max(newest, time), 0);
  return {
    horizon: metaValue(schema, 'horizon'),
    freedBefore: metaValue(schema, 'freed'),
    newestEvent: newestEvent === 0 ? null : newestEvent,
    note: schema.notes.get('retention') ?? null,
  };
}

export function restoreHorizon(schema: Schema, to: number): number {
  const before = metaValue(schema, 'horizon');
  const horizon = Math.max(to, metaValue(schema, 'freed'));
  if (horizon >= before) return before;
  schema.meta.putSync('horizon', horizon);
  changeAllVersions(schema);
  countChange(schema);
  return horizon;
}
