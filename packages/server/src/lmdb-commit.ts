/** LMDB's transactions as they are used here, in both files. */
import type { RootDatabase } from 'lmdb';

/** The disk is full, say. Nothing of the transaction was kept. */
export class CommitFailed extends Error {}

/** All of it or nothing: a child transaction, because only that is rolled back when the action throws. */
export async function commit<T>(root: RootDatabase, action: () => T): Promise<T> {
  try {
    return (await root.childTransaction(action)) as T;
  } catch (error) {
    if (!(error instanceof Error && 'commitError' in error)) throw error;
    // The cause comes in a promise of its own, which would end the process if nobody looked at it.
    const cause = await Promise.resolve(error.commitError).catch((reason: unknown) => reason);
    throw new CommitFailed(cause instanceof Error ? cause.message : 'the commit failed', { cause });
  }
}
