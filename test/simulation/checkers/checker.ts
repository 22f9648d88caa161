import type { Appended, Batch, Retention, Store } from '../../../packages/server/src/store/store.ts';
import type { Ledger } from '../ledger.ts';
import type { Scheduler } from '../scheduler.ts';

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

/** What checkers know of the world. */
export interface Checked {
  scheduler: Scheduler;
  ledger: Ledger;
  /** A store of its own, which only reads. */
  reader: Store;
  project: string;
  /** The system clock, which may be wrong. */
  now: () => number;
  retentionMs: number;
  /** How long kept attacks stay. */
  detailsMs: number;
  horizon: () => Retention;
  /** Whether one process at a time has read the log since everything was settled, and nothing but rotation has changed it. */
  isOrderly: () => boolean;
  /** Warnings of `follow` by source, since the last time that everything was settled. */
  warnings: Map<string, string[]>;
}

export class CheckFailed extends Error {
  override name = 'CheckFailed';
}
