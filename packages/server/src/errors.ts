/** Every error that a client of the API can see. A test compares the table with docs/errors.md. */

export const ERRORS = {
  'WAF.1001': { status: 400, when: 'the time zone or another part of the request is malformed' },
  'WAF.1003': { status: 400, when: 'a project ID or host ID is malformed' },
  'WAF.1025': {
    status: 400,
    when: '`from`, `to` or `recent` is missing, not an integer, out of range, reversed, or given twice, or the range has too much data',
  },
  'WAF.3004': {
    status: 429,
    when: 'the caller exceeds its rate limit; `Retry-After` says when to continue',
  },
  'WAF.4000': { status: 404, when: 'there is no such path, host or event' },
  'WAF.4001': { status: 405, when: 'the path does not support this method; `Allow` lists the methods' },
  'WAF.5000': { status: 500, when: 'the service failed; its log has the cause under the request ID' },
  'WAF.5001': {
    status: 503,
    when: 'the store, PostgreSQL or Keystone does not respond, or the service is overloaded or cannot write; `Retry-After` says when to retry',
  },
  'WAF.7001': { status: 413, when: 'the request body is too large' },
  'WAF.9001': {
    status: 401,
    when: 'credentials are missing, wrong or expired; `X-Token-Refusal` says why a token is refused',
  },
  'WAF.9002': { status: 403, when: 'the caller lacks the permission for this call or project' },
} as const;

/** The response header that tells programs why a token is refused: a TokenRefusal. */
export const TOKEN_REFUSAL_HEADER = 'X-Token-Refusal';

export type ErrorCode = keyof typeof ERRORS;

export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, message: string, headers: Readonly<Record<string, string>> = {}) {
    // Captures no stack, which is never logged: it took 7% of the CPU time of a flood of rejected requests.
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

export function malformed(message: string): ApiError {
  return new ApiError('WAF.1001', message);
}

/** A parameter with a wrong value, of which the message quotes only the beginning. */
export function invalid(name: string, value: string, rule: string, code: ErrorCode = 'WAF.1001'): ApiError {
  const excerpt = value.length <= 64 ? value : `${value.slice(0, 64)}...`;
  return new ApiError(code, `${name} is '${excerpt}', but ${rule}`);
}

export function retryLater(code: 'WAF.3004' | 'WAF.5001', message: string, afterS: number): ApiError {
  return new ApiError(code, message, { 'Retry-After': String(afterS) });
}
