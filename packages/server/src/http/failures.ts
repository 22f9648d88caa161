/** Turns any error into the response that clients of the API family expect. */
import { STATUS_CODES } from 'node:http';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { AuditUnavailable, ChangesThrottled } from '../audit/audit-trail.ts';
import { ApiError, malformed, retryLater } from '../errors.ts';
import {
  IdentityDamaged,
  IdentityNotWritable,
  IdentityUnavailable,
  UnknownRecord,
} from '../identity/errors.ts';
import { LoginThrottled } from '../identity/login-throttle.ts';
import { LinesInFuture, SourceLimitReached } from '../ingest/pipeline.ts';
import { QueryTooLarge, StoreDamaged, StoreNotWritable, StoreUnavailable } from '../store/store.ts';
import { tooLarge } from './ingest/uploads.ts';

/** The limit of all calls except pushes; far more than any of them needs. */
export const BODY_BYTES_MAX = 65_536;

const OUTCOME_UNKNOWN =
  'whether anything was changed is unknown (a push with an Idempotency-Key can be sent again safely)';

function toApiError(error: unknown, bodyBytesMax: number): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof SourceLimitReached) return malformed(error.message);
  if (error instanceof LinesInFuture) {
    const advice = 'check the clocks of the service and of the sender';
    return retryLater('WAF.5001', `nothing was counted: ${error.message}; ${advice}; retry later`, 60);
  }
  // The record was deleted after the request was checked.
  if (error instanceof UnknownRecord) return new ApiError('WAF.4000', error.message);
  if (error instanceof QueryTooLarge) return new ApiError('WAF.1025', error.message);
  if (error instanceof StoreDamaged) {
    const advice = "the operator must run 'wafstat verify' (the log says where)";
    return new ApiError('WAF.5001', `stored statistics of this range are damaged; ${advice}`);
  }
  if (isNotWritable(error)) {
    // The message contains paths, so it goes only to the log.
    const outcome = error.outcomeUnknown ? OUTCOME_UNKNOWN : 'nothing was changed';
    return retryLater('WAF.5001', `${error.trouble}; ${outcome}; retry later`, 5);
  }
  if (error instanceof StoreUnavailable) {
    const outcome = error.outcomeUnknown ? `; ${OUTCOME_UNKNOWN}` : '';
    return retryLater('WAF.5001', `the store is unavailable${outcome}; retry later`, 5);
  }
  if (error instanceof IdentityDamaged) {
    const advice = "the operator must run 'wafstat verify' (the log says where)";
    return new ApiError('WAF.5001', `stored users, projects or keys are damaged; ${advice}`);
  }
  if (error instanceof IdentityUnavailable)
    return retryLater('WAF.5001', 'users and permissions cannot be looked up now; retry later', 5);
  if (error instanceof AuditUnavailable) {
    if (error.cause instanceof StoreUnavailable) return toApiError(error.cause, bodyBytesMax);
    const advice = 'free space in the data directory';
    const message = `nothing was changed, because the audit trail cannot be written: ${advice}`;
    return retryLater('WAF.5001', message, 60);
  }
  if (error instanceof ChangesThrottled) return retryLater('WAF.3004', error.message, error.retryAfterS);
  if (error instanceof LoginThrottled) {
    const code = error.limit === 'service' ? 'WAF.5001' : 'WAF.3004';
    return retryLater(code, error.message, error.retryAfterS);
  }
  const { code, statusCode, message } = error as Partial<FastifyError>;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return tooLarge(bodyBytesMax);
  // Requests that Fastify rejects (a bad Content-Length, for example) are the client's mistake, named in the message.
  if (statusCode !== undefined && statusCode < 500) return malformed(message ?? 'malformed request');
  return new ApiError('WAF.5000', 'the service failed; its log has the cause under the request ID');
}

export function sendFailure(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const failure = toApiError(error, request.routeOptions.bodyLimit);
  if (failure.status >= 500 && !(error instanceof LoginThrottled)) logFailure(error, request);
  reply.code(failure.status).headers(failure.headers);
  // Hooks do not run for requests that Fastify rejects before it finds a route.
  reply.headers({ 'X-Request-Id': request.id, 'X-Content-Type-Options': 'nosniff' });
  reply.type('application/json; charset=utf-8').send(failureBody(failure, isIdentityPath(request.url)));
}

/** Logs one short line on overload or a full disk: a stack trace costs more than the query, and takes up space. */
function logFailure(error: unknown, { log, id }: FastifyRequest): void {
  const isBrief = error instanceof LinesInFuture || isNotWritable(error);
  if (isBrief || (error instanceof ApiError && error.status === 503)) log.warn({ reqId: id }, error.message);
  else log.error({ err: error, reqId: id }, 'request failed');
}

export function isNotWritable(error: unknown): error is StoreNotWritable | IdentityNotWritable {
  return error instanceof StoreNotWritable || error instanceof IdentityNotWritable;
}

export function failureBody({ code, status, message }: ApiError, isIdentity: boolean): string {
  return isIdentity
    ? JSON.stringify({ error: { code: status, title: STATUS_CODES[status], message } })
    : JSON.stringify({ error_code: code, error_msg: message });
}

/** Keystone clients expect Keystone's error format. */
function isIdentityPath(url: string): boolean {
  return /^\/(identity|v3)(?:[/?.]|$)/.test(url);
}
