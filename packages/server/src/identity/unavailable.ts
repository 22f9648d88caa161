import type { CommitFailed, WriteTrouble } from '../lmdb/commit.ts';

/** The identity service that we ask does not answer, or not so that it can be understood. The message is for our log. */
export class IdentityUnavailable extends Error {}

/** It answers, but does not let us ask: who runs us has to put that right. */
export class IdentityRefusesUs extends IdentityUnavailable {}

/** We ask too much of it at once: this call is refused, the next may not be. */
export class IdentityBusy extends IdentityUnavailable {}

/** It answers, but not so that it can be understood: that may be for what a stranger sent, and the next is none. */
export class IdentityNotUnderstood extends IdentityUnavailable {}

/** The identity of our own cannot be changed now. Logins and queries go on. */
export class IdentityNotWritable extends IdentityUnavailable {
  readonly trouble: WriteTrouble;

  constructor(cause: CommitFailed) {
    super(cause.message, { cause });
    this.name = 'IdentityNotWritable';
    this.trouble = cause.trouble;
  }
}
