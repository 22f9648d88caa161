/** Messages in place of content: nothing there, or an error. */
import { WafstatError } from '@wafstat/client';
import { h } from '../dom.ts';

export function message(title: string, text: string, ...more: Node[]): HTMLElement {
  return h('div', { class: 'message' }, h('h2', {}, title), h('p', {}, text), ...more);
}

/** The error message of the service, and a button to try again. */
export function failureNotice(failure: unknown, again?: () => void): HTMLElement {
  const { title, text, requestId } = explain(failure);
  return h(
    'div',
    { class: 'message failure', role: 'alert' },
    h('h2', {}, title),
    h('p', {}, text),
    requestId !== undefined && h('p', { class: 'hint' }, 'Request ID ', h('code', {}, requestId)),
    again !== undefined &&
      h('button', { class: 'button', type: 'button', on: { click: again } }, 'Try again'),
  );
}

/** The error as one sentence, for forms. */
export function sentence(failure: unknown): string {
  const { text } = explain(failure);
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

export function isAbort(failure: unknown): boolean {
  return failure instanceof DOMException && failure.name === 'AbortError';
}

function explain(failure: unknown): { title: string; text: string; requestId?: string | undefined } {
  if (!(failure instanceof WafstatError)) return { title: 'Something went wrong', text: String(failure) };
  const { status, message: text, requestId } = failure;
  if (status === undefined) {
    return { title: 'The service is not responding', text: 'It may be restarting, or the network is down.' };
  }
  if (status === 403) return { title: 'Not allowed', text, requestId };
  if (status === 429) return { title: 'Too many requests', text, requestId };
  return { title: 'The request failed', text, requestId };
}
