/** Every failure a caller of the API can see: one table, one error. docs/errors.md is tested against it. */

export const ERRORS = {
  'WAF.1001': { status: 400, when: 'the time zone or another part of the request is malformed' },
  'WAF.1003': { status: 400, when: 'a project ID or host ID is malformed' },
  'WAF.1025': {
    status: 400,
    when: '`from`, `to` or `recent` is missing, not an integer, out of range, reversed, or given twice',
  },
  'WAF.3004': {
    status: 429,
    when: 'the caller sends requests faster than its limit; `Retry-After` says when to go on',
  },
  'WAF.4000': { status: 404, when: 'there is no such path' },
  'WAF.4001': { status: 405, when: 'the path exists, but not with this method; `Allow` lists the methods' },
  'WAF.5000': { status: 500, when: 'the service failed; the log has the cause under the request ID' },
  'WAF.5001': {
    status: 503,
    when: 'the store or the identity service does not answer, or the service is too busy or cannot write; `Retry-After` says when to try again',
  },
  'WAF.7001': { status: 413, when: 'the request body is too large' },
  'WAF.9001': { status: 401, when: 'credentials are missing, wrong or expired' },
  'WAF.9002': { status: 403, when: 'the caller is known, but may not do this in this project' },
} as const;

export type ErrorCode = keyof typeof ERRORS;

export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, message: string, headers: Readonly<Record<string, string>> = {}) {
    // Without a stack, which nobody reads: capturing it took 7% of the CPU time of a flood of refused requests.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message);
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'ApiError';
    this.code = code;
    this.status = ERRORS[code].status;
    this.headers = headers;
  }
}
