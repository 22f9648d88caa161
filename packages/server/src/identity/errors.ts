/** The errors of identity that other parts of the server tell apart. */

/** A change that is not possible; the message is for the person who requested it. */
export class IdentityError extends Error {}

/** The record does not exist, or no longer exists. */
export class UnknownRecord extends IdentityError {}

export class KeyLimitError extends IdentityError {}

export class WrongMasterKey extends Error {}

/** The database has an installation already. */
export class AlreadyInitialised extends Error {}

/** Keystone or PostgreSQL does not respond as expected. The message is for the log. */
export class IdentityUnavailable extends Error {}

/** Keystone rejects the service user of this process: the operator must fix that. */
export class ServiceUserRejected extends IdentityUnavailable {}

/** Too many calls to Keystone are in progress; later ones may succeed. */
export class TooManyIdentityCalls extends IdentityUnavailable {}

/** An unexpected response, perhaps to what the caller sent. Other calls may succeed. */
export class UnexpectedIdentityResponse extends IdentityUnavailable {}

/** A record of the identity file is damaged. The message names it. */
export class IdentityDamaged extends IdentityUnavailable {}

/** The identity store cannot be changed now. Logins and queries still work. */
export class IdentityNotWritable extends IdentityUnavailable {
  override name = 'IdentityNotWritable';
  /** A short form of the message, without paths. */
  readonly trouble: string;
  readonly outcomeUnknown: boolean;

  constructor(message: string, trouble: string, options: ErrorOptions & { outcomeUnknown?: boolean } = {}) {
    super(message, options);
    this.trouble = trouble;
    this.outcomeUnknown = options.outcomeUnknown ?? false;
  }
}
