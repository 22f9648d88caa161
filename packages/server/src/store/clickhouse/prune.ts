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
  stop: AbortSignal | undefined,
): Promise<void> {
  const moved = await ledger.change([], ({ head }) => {
    const isNew = before > head.horizon;
    const isNewDay = dayOf(before) > dayOf(head.horizon);
    return { result: isNewDay, writes: new Map(), ...(isNew ? { head: moveHorizon(head, before) } : {}) };
  });
  // Batches are remembered by the day: the rest of it, there is nothing to do.
  if (!moved || stop?.aborted) return;
  for await (const old of ledger.scanOlder('batch/', dayOf(before))) {
    if (stop?.aborted) return;
    const keys = old.map(({ key }) => key);
    await forgetBatches(ledger, keys, dayOf(before));
  }
  await ledger.sweep(SWEEP_ROWS_MIN);
}

/** An attempt that was never closed is let go when the horizon has passed all that it can have written. */
function moveHorizon(head: Head, horizon: number): Head {
  return { ...head, horizon, open: head.open.filter(({ opened }) => opened + ATTEMPT_MS_MAX >= horizon) };
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
