/** Loading, errors, and messages in place of content. */
import { WafstatError } from '@wafstat/client';
import type { ComponentChildren } from 'preact';
import type { Query } from '../use-query.ts';
import { Button } from './button.tsx';

export function Message({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="message">
      <h2>{title}</h2>
      <p>{children}</p>
    </div>
  );
}

/** A message instead of the page. */
export function MessagePage({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="page narrow">
      <div class="message">
        <h1>{title}</h1>
        <p>{children}</p>
      </div>
    </div>
  );
}

/** The error message of the service, and a button to try again. */
export function Failure({ failure, retry }: { failure: unknown; retry: () => void }) {
  const { title, text, requestId } = explain(failure);
  return (
    <div class="message failure" role="alert">
      <h2>{title}</h2>
      <p>{text}</p>
      {requestId !== undefined && (
        <p class="hint">
          Request ID <code>{requestId}</code>
        </p>
      )}
      <Button onClick={retry}>Try again</Button>
    </div>
  );
}

/** In the place of data that has not been loaded: the skeleton, or why it failed. A failed refresh is shown above old data. */
export function QueryState({ query: { data, failure, reload } }: { query: Query<unknown> }) {
  if (failure !== null) return <Failure failure={failure} retry={reload} />;
  return data === null ? <Skeleton /> : null;
}

/** In the place of content that is loading. */
export function Skeleton() {
  return <div class="skeleton block" />;
}

/** An error below a form or a table; nothing if the text is empty. */
export function Problem({ text }: { text: string }) {
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

/** The error in whole sentences, for forms. */
export function sentence(failure: unknown): string {
  const { title, text } = explain(failure);
  return isNoResponse(failure) ? `${title}. ${text}` : text;
}

/** Whether it makes sense to try again: the service did not respond, or could not. */
export function isTemporary(failure: unknown): boolean {
  if (!(failure instanceof WafstatError)) return false;
  const { status = 503 } = failure;
  return status === 429 || status >= 500;
}

export function isForbidden(failure: unknown): boolean {
  return failure instanceof WafstatError && failure.status === 403;
}

function isNoResponse(failure: unknown): boolean {
  return failure instanceof WafstatError && failure.status === undefined;
}

function explain(failure: unknown): { title: string; text: string; requestId?: string | undefined } {
  const text = asSentence(failure instanceof Error ? failure.message : String(failure));
  if (!(failure instanceof WafstatError)) return { title: 'Something went wrong', text };
  if (isNoResponse(failure))
    return { title: 'The service is not responding', text: 'It may be restarting, or the network is down.' };
  const { status = 0, requestId } = failure;
  return { title: TITLES[status] ?? 'The request failed', text, requestId };
}

const TITLES: Readonly<Record<number, string>> = {
  403: 'Not allowed',
  429: 'Too many requests',
  503: 'The service is unavailable',
};

/** Messages of the service begin in lower case. */
function asSentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}
