/** A range of one's own, down to the minute, on the chosen clock. */
import type { App } from '../app.ts';
import { fill, h } from '../dom.ts';
import { icon } from '../icons.ts';
import { rangeOf } from '../time-span.ts';
import { field } from './form.ts';
import { popover } from './popover.ts';

export interface OwnRange {
  element: HTMLElement;
  /** The range as text when it is one's own, null when it is not. */
  label(text: string | null): void;
}

export function ownRange(app: App): OwnRange {
  const from = field('From', { type: 'datetime-local', required: true });
  const to = field(
    'To',
    { type: 'datetime-local', required: true },
    'Not part of the range. Times are on the chosen clock.',
  );
  const problem = h('p', { class: 'problem', role: 'alert' });
  const form = h(
    'form',
    { class: 'own-range' },
    from.element,
    to.element,
    problem,
    h('button', { class: 'button primary', type: 'submit' }, 'Show'),
  );
  const button = h('button', { type: 'button', 'aria-label': 'Own range' }, 'Own');
  const panel = popover(button, 'Own range', form, () => {
    const range = rangeOf(app.view().span, app.offsetMs(), app.now());
    from.input.value = toLocal(range.from, app.offsetMs());
    to.input.value = toLocal(range.to, app.offsetMs());
    problem.textContent = '';
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const range = {
      from: toTime(from.input.value, app.offsetMs()),
      to: toTime(to.input.value, app.offsetMs()),
    };
    if (!(range.from < range.to)) {
      problem.textContent = 'The start must be before the end.';
      return;
    }
    panel.close();
    app.go({ span: range, offset: 0 });
  });
  return {
    element: panel.element,
    label(text) {
      button.setAttribute('aria-pressed', String(text !== null));
      fill(button, icon('clock'), text ?? 'Own');
      button.setAttribute('aria-label', text === null ? 'Own range' : `Own range: ${text}`);
      button.title = text ?? 'Own range';
    },
  };
}

/** As an input of dates and times holds it. */
export function toLocal(time: number, offsetMs: number): string {
  return new Date(time + offsetMs).toISOString().slice(0, 16);
}

export function toTime(local: string, offsetMs: number): number {
  return Date.parse(`${local}Z`) - offsetMs;
}
