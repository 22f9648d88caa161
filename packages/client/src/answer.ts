import { WafstatError } from './error.ts';

export interface Answer {
  /** The method and the address, for sentences about the answer. */
  source: string;
  status: number;
  headers: Headers;
  body: string;
}

/** The error of an answer, in the words of the server: the API and the identity service have a form each. */
export function errorOf(answer: Answer): WafstatError {
  const body = jsonOf(answer);
  const message = text(field(body, 'error_msg')) ?? text(field(field(body, 'error'), 'message'));
  const errorCode = text(field(body, 'error_code'));
  return unexpected(
    answer,
    message ?? `${answer.source} answered ${answer.status} and gave no reason.`,
    errorCode,
  );
}

/** The error of an answer that arrived well but is not what was asked for. */
export function unexpected(answer: Answer, message: string, errorCode?: string): WafstatError {
  const requestId = answer.headers.get('X-Request-Id') ?? undefined;
  return new WafstatError(message, { status: answer.status, errorCode, requestId });
}

/** Undefined when the answer is not JSON. */
export function jsonOf(answer: Answer): unknown {
  try {
    return JSON.parse(answer.body);
  } catch {
    return undefined;
  }
}

export function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
