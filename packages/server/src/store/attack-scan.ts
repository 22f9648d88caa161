/** Reads all kept attacks of a range, by column. */
import { type AttackHour, lowestThreshold } from './attack-hours.ts';
import { AttackSelection, type SelectedRows } from './attack-selection.ts';
import type { Selection, TimeRange } from './store.ts';

/** Gets the selected rows of each block of an hour. Blocks may overlap in time. They can be read only until the end of the visit. */
export type VisitHour = (hour: readonly SelectedRows[]) => Generator<void, void>;

const EVERYTHING = { include: {}, exclude: {} };

export class AttackScan {
  readonly #selection: AttackSelection;
  readonly #visit: VisitHour;

  constructor(query: Selection & TimeRange, visit: VisitHour, isRegistered: (hostId: string) => boolean) {
    this.#selection = new AttackSelection({ ...query, filter: EVERYTHING }, query, isRegistered);
    this.#visit = visit;
  }

  *add({ blocks }: AttackHour): Generator<void, void> {
    const threshold = lowestThreshold(blocks);
    const selected: SelectedRows[] = [];
    for (const block of blocks) {
      selected.push(this.#selection.select(block, threshold).selected);
      yield;
    }
    yield* this.#visit(selected);
  }
}
