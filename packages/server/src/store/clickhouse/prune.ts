/** Retention: the horizon moves first; then batches with no event after it are deleted. */
import { dayOf, type StoredBatch } from '../store.ts';
import {
  batchKey,
  type Ledger,
  type LedgerState,
  type LinksValue,
  linksKey,
  parse,
  partsOf,
  type Snapshot,
} from './ledger.ts';

/** Deleting rows rewrites parts of the table: fewer rows are not worth it. */
const REMOVED_ROWS_MIN = 10_000;
/** No event is more than a day in the future, and no attempt takes a day. */
const ATTEMPT_MS_MAX = 2 * 86_400_000;

export async function pruneLedger(
  ledger: Ledger,
  before: number,
  freeBefore: number,
  stop: AbortSignal | undefined,
): Promise<void> {
  const isNewDay = await ledger.change([], ({ state }) => {
    const horizon = Math.max(before, state.horizon);
    const freed = Math.max(freedBefore(state), Math.min(freeBefore, horizon));
    const isChanged = horizon > state.horizon || freed > freedBefore(state);
    return {
      result: dayOf(freed) > dayOf(freedBefore(state)),
      ...(isChanged ? { state: moveHorizon({ ...state, freed }, horizon) } : {}),
    };
  });
  // Batches are deleted by day.
  if (!isNewDay || stop?.aborted) return;
  for await (const old of ledger.scanOlder('batch/', dayOf(freeBefore))) {
    if (stop?.aborted) return;
    const keys = old.map(({ key }) => key);
    await deleteBatches(ledger, keys, dayOf(freeBefore));
  }
  await ledger.deleteRemoved(REMOVED_ROWS_MIN);
}

/** Ledgers of releases that did not store this have freed everything before the horizon. */
export function freedBefore({ freed, horizon }: LedgerState): number {
  return freed ?? horizon;
}

export function restoreHorizon(ledger: Ledger, to: number): Promise<number> {
  return ledger.change([], ({ state }) => {
    const freed = freedBefore(state);
    const horizon = Math.min(state.horizon, Math.max(to, freed));
    return { result: horizon, state: { ...state, freed, horizon } };
  });
}

/** Drops attempts that were never closed, once all cells that they may have written are freed. */
function moveHorizon(state: LedgerState, horizon: number): LedgerState {
  const open = state.open.filter(({ opened }) => opened + ATTEMPT_MS_MAX >= freedBefore(state));
  return { ...state, horizon, open };
}

async function deleteBatches(ledger: Ledger, batches: readonly string[], day: number): Promise<void> {
  const parsed = batches.map((key) => {
    const [project = '', source = '', id = ''] = partsOf(key);
    return { key, project, source, id };
  });
  const found = await ledger.read(batches);
  const keys = parsed.flatMap(({ key, project, source, id }) => [
    key,
    linksKey(project, source, id),
    linksKey(project, source, parse<StoredBatch>(found.get(key))?.after ?? ''),
  ]);
  await ledger.change(keys, (snapshot) => {
    const writes = new Map<string, string>();
    const get: Snapshot['get'] = (key) => writes.get(key) ?? snapshot.get(key);
    for (const { key, project, source, id } of parsed) {
      const batch = parse<StoredBatch>(get(key));
      if (batch === undefined || batch.day >= day) continue;
      const next = parse<LinksValue>(get(linksKey(project, source, id))) ?? [];
      // Links are read from the start of a file: a batch is kept as long as another one follows it.
      if (next.length > 0) writes.set(key, JSON.stringify({ ...batch, day }));
      else {
        writes.set(batchKey(project, source, id), '');
        if (batch.after !== undefined) {
          const links = linksKey(project, source, batch.after);
          const rest = (parse<LinksValue>(get(links)) ?? []).filter((link) => link.id !== id);
          writes.set(links, rest.length === 0 ? '' : JSON.stringify(rest));
        }
      }
    }
    return { result: undefined, writes };
  });
}
