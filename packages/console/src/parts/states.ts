/** What stands where numbers would, when there are none: still loading, nothing there, something wrong. */
import { WafstatError } from '@wafstat/client';
import { h } from '../dom.ts';

export function message(title: string, text: string, ...more: Node[]): HTMLElement {
  return h('div', { class: 'message' }, h('h2', {}, title), h('p', {}, text), ...more);
}

/** Says what went wrong in the words of the service, and offers to try again. */
export function failureNotice(failure: unknown, again?: () => void): HTMLElement {
  const { title, text, requestId } = explain(failure);
  return h(
    'div',
    { class: 'message failure', role: 'alert' },
    h('h2', {}, title),
    h('p', {}, text),
    requestId !== undefined && h('p', { class: 'hint' }, 'Request ', h('code', {}, requestId)),
    again !== undefined &&
      h('button', { class: 'button', type: 'button', on: { click: again } }, 'Try again'),
  );
}

/** For a form: one sentence beside its button. */
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
    return { title: 'The service does not answer', text: 'It may be restarting, or the network is down.' };
  }
  if (status === 403) return { title: 'Not allowed', text, requestId };
  if (status === 429) return { title: 'Too many requests', text, requestId };
  return { title: 'The service could not answer', text, requestId };
}
