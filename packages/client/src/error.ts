/** Any answer that is not the one asked for, or none at all. */
export class WafstatError extends Error {
  /** Undefined when there was no answer, as are the two below when the answer did not carry them. */
  readonly status: number | undefined;
  /** Such as `WAF.1025`. */
  readonly errorCode: string | undefined;
  /** Finds the request in the log of the server. */
  readonly requestId: string | undefined;

  constructor(message: string, origin: ErrorOrigin = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = 'WafstatError';
    this.status = origin.status;
    this.errorCode = origin.errorCode;
    this.requestId = origin.requestId;
  }
}

interface ErrorOrigin {
  status?: number | undefined;
  errorCode?: string | undefined;
  requestId?: string | undefined;
}
