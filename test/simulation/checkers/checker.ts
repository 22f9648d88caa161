import type { Appended, Batch, Retention, Store } from '../../../packages/server/src/store/store.ts';
import type { Ledger } from '../ledger.ts';
import type { Environment } from '../processes.ts';
import { HOUR_MS } from '../scheduler.ts';

/** An invariant. Each method throws CheckFailed if it does not hold. */
export interface Checker {
  /** A store has appended the batch. */
  appended?(batch: Batch, result: Appended & { kind: 'appended' }): void;
  /** A store or a process has reported that so many records of a source are durable. */
  acknowledged?(by: string, source: string, records: number): Promise<void>;
  /** A store call that may move the horizon has ended. */
  retained?(state: Retention, isMovedBack: boolean): void;
  /** Every process had time to read everything, with a correct clock and without faults. */
  settled?(): Promise<void>;
}

/** Smaller jumps of the clock are trusted at once, in both directions. */
export const JUMP_MS_MAX = HOUR_MS;

/** What checkers know of the world. */
export interface Checked extends Pick<Environment, 'scheduler' | 'project' | 'now' | 'retentionMs'> {
  ledger: Ledger;
  /** A store of its own, which only reads. */
  reader: Store;
  horizon: () => Retention;
  /** Whether one process at a time has read the log since everything was settled, and nothing but rotation has changed it. */
  isOrderly: () => boolean;
  /** Warnings of `follow` by source, since the last time that everything was settled. */
  warnings: Map<string, string[]>;
}

export class CheckFailed extends Error {
  override name = 'CheckFailed';
}
