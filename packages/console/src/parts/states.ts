/** Loading, errors, and messages in place of content. */
import { WafstatError } from '@wafstat/client';
import type { App } from '../app.ts';
import { button, fill, h } from '../dom.ts';

export interface Loader {
  load(): void;
  abort(): void;
}

/** Each load aborts the one before. Errors are shown by `fail`, or as a notice in an element. */
export function loader(
  app: App,
  read: (signal: AbortSignal) => Promise<void>,
  fail: Element | ((failure: unknown) => void),
): Loader {
  let aborter = new AbortController();
  async function run(signal: AbortSignal): Promise<void> {
    try {
      await read(signal);
    } catch (failure) {
      if (signal.aborted || app.handleSignedOut(failure)) return;
      if (fail instanceof Element) fill(fail, failureNotice(failure, load));
      else fail(failure);
    }
  }
  function load(): void {
    aborter.abort();
    aborter = new AbortController();
    void run(aborter.signal);
  }
  return { load, abort: () => aborter.abort() };
}

/** Runs a change, then `done`. Shows an error in `problem`. */
export async function attempt(app: App, problem: Element, change: () => Promise<void>, done: () => void) {
  problem.textContent = '';
  try {
    await change();
    done();
  } catch (failure) {
    if (!app.handleSignedOut(failure)) problem.textContent = sentence(failure);
  }
}

export function message(title: string, text: string): HTMLElement {
  return h('div', { class: 'message' }, h('h2', {}, title), h('p', {}, text));
}

/** The error message of the service, and a button to try again. */
export function failureNotice(failure: unknown, retry: () => void): HTMLElement {
  const { title, text, requestId } = explain(failure);
  return h(
    'div',
    { class: 'message failure', role: 'alert' },
    h('h2', {}, title),
    h('p', {}, text),
    requestId !== undefined && h('p', { class: 'hint' }, 'Request ID ', h('code', {}, requestId)),
    button({}, retry, 'Try again'),
  );
}

/** The error as one sentence, for forms. */
export function sentence(failure: unknown): string {
  const { text } = explain(failure);
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

function explain(failure: unknown): { title: string; text: string; requestId?: string | undefined } {
  if (!(failure instanceof WafstatError)) {
    return {
      title: 'Something went wrong',
      text: failure instanceof Error ? failure.message : String(failure),
    };
  }
  const { status, message: text, requestId } = failure;
  if (status === undefined) {
    return { title: 'The service is not responding', text: 'It may be restarting, or the network is down.' };
  }
  if (status === 403) return { title: 'Not allowed', text, requestId };
  if (status === 429) return { title: 'Too many requests', text, requestId };
  return { title: 'The request failed', text, requestId };
}
