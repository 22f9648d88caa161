/** Forgetting: the horizon moves first; then batches of which every event lies before it are forgotten. */
import { parse } from './append.ts';
import { type BatchValue, batchKey, type LinksValue, linksKey, partsOf } from './keys.ts';
import type { Head, Ledger, Page } from './ledger.ts';

const DAY_MS = 86_400_000;
/** Rows of forgotten keys that are worth rewriting parts of the table for. */
const SWEEP_ROWS_MIN = 10_000;
/** No event is later than a day after it came, and no attempt takes a day. */
const ATTEMPT_MS_MAX = 2 * DAY_MS;

export async function pruneLedger(
  ledger: Ledger,
  before: number,
  freeBefore: number,
  stop: AbortSignal | undefined,
): Promise<void> {
  const isNewDay = await ledger.change([], ({ head }) => {
    const horizon = Math.max(before, head.horizon);
    const freed = Math.max(freedBefore(head), Math.min(freeBefore, horizon));
    const changed = horizon > head.horizon || freed > freedBefore(head);
    return {
      result: dayOf(freed) > dayOf(freedBefore(head)),
      writes: new Map(),
      ...(changed ? { head: moveHorizon({ ...head, freed }, horizon) } : {}),
    };
  });
  // Batches are remembered by the day: the rest of it, there is nothing to do.
  if (!isNewDay || stop?.aborted) return;
  for await (const old of ledger.scanOlder('batch/', dayOf(freeBefore))) {
    if (stop?.aborted) return;
    const keys = old.map(({ key }) => key);
    await forgetBatches(ledger, keys, dayOf(freeBefore));
  }
  await ledger.sweep(SWEEP_ROWS_MIN);
}

/** Ledgers from before this was noted have freed everything up to the horizon. */
export function freedBefore({ freed, horizon }: Head): number {
  return freed ?? horizon;
}

export function restoreHorizon(ledger: Ledger, to: number): Promise<number> {
  return ledger.change([], ({ head }) => {
    const freed = freedBefore(head);
    const horizon = Math.min(head.horizon, Math.max(to, freed));
    return { result: horizon, writes: new Map(), head: { ...head, freed, horizon } };
  });
}

/** An attempt that was never closed is let go when space has been freed past all that it can have written. */
function moveHorizon(head: Head, horizon: number): Head {
  const open = head.open.filter(({ opened }) => opened + ATTEMPT_MS_MAX >= freedBefore(head));
  return { ...head, horizon, open };
}

async function forgetBatches(ledger: Ledger, batches: readonly string[], day: number): Promise<void> {
  const pieces = batches.map((key) => {
    const [project = '', source = '', id = ''] = partsOf(key);
    return { key, project, source, id };
  });
  const found = await ledger.read(batches);
  const keys = pieces.flatMap(({ key, project, source, id }) => [
    key,
    linksKey(project, source, id),
    linksKey(project, source, parse<BatchValue>(found.get(key))?.after ?? ''),
  ]);
  await ledger.change(keys, (page) => {
    const writes = new Map<string, string>();
    const get: Page['get'] = (key) => writes.get(key) ?? page.get(key);
    for (const { key, project, source, id } of pieces) {
      const batch = parse<BatchValue>(get(key));
      if (batch === undefined || batch.day >= day) continue;
      const behind = parse<LinksValue>(get(linksKey(project, source, id))) ?? [];
      // A trail is read from its start: what has something behind it is kept until that is forgotten.
      if (behind.length > 0) writes.set(key, JSON.stringify({ ...batch, day }));
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

function dayOf(time: number): number {
  return Math.floor(time / DAY_MS);
}
