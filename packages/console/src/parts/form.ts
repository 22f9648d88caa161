/** Labelled inputs, forms and dialogs. */
import { h, type Props, uniqueId } from '../dom.ts';
import { sentence } from './states.ts';

export interface Field {
  element: HTMLElement;
  input: HTMLInputElement;
}

export function field(label: string, props: Props, hint?: string): Field {
  const id = uniqueId();
  const hintId = `${id}-hint`;
  const input = h('input', { id, ...props, 'aria-describedby': hint === undefined ? null : hintId });
  const element = h(
    'div',
    { class: 'field' },
    h('label', { for: id }, label),
    input,
    hint !== undefined && h('p', { class: 'hint', id: hintId }, hint),
  );
  return { element, input };
}

export interface Choice {
  element: HTMLElement;
  select: HTMLSelectElement;
}

export function choice(label: string, options: readonly (readonly [value: string, text: string])[]): Choice {
  const id = uniqueId();
  const select = h('select', { id }, ...options.map(([value, text]) => h('option', { value }, text)));
  return { element: h('div', { class: 'field' }, h('label', { for: id }, label), select), select };
}

/** Shows errors next to the button. `submit` resolves to the success message. */
export function submitForm(
  name: string,
  verb: string,
  fields: readonly HTMLElement[],
  submit: () => Promise<string>,
  failed: (failure: unknown) => boolean,
): HTMLFormElement {
  const outcome = h('p', { class: 'outcome', role: 'status' });
  const button = h('button', { class: 'button primary', type: 'submit' }, verb);
  const form = h(
    'form',
    { class: 'form', 'aria-label': name },
    ...fields,
    h('div', { class: 'form-end' }, button, outcome),
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    outcome.textContent = '';
    outcome.classList.remove('problem');
    try {
      outcome.textContent = await submit();
      form.reset();
    } catch (failure) {
      if (failed(failure)) return;
      outcome.classList.add('problem');
      outcome.textContent = sentence(failure);
    } finally {
      button.disabled = false;
    }
  });
  return form;
}

/** Opens a modal dialog. Returns a function that closes it. */
export function dialog(title: string, content: HTMLElement): () => void {
  const id = uniqueId();
  const close = () => box.close();
  const cancel = h('button', { class: 'button', type: 'button', on: { click: close } }, 'Cancel');
  const box = h('dialog', { 'aria-labelledby': id }, h('h2', { id }, title), content, cancel);
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
  // Forms have a row of buttons at their end.
  content.querySelector('.form-end')?.append(cancel);
  return close;
}

/** Asks before an action that cannot be undone. */
export function confirm(title: string, text: string, verb: string, act: () => void): void {
  const button = h('button', { class: 'button danger', type: 'button' }, verb);
  const content = h('div', {}, h('p', {}, text), h('div', { class: 'form-end' }, button));
  const close = dialog(title, content);
  button.addEventListener('click', () => {
    close();
    act();
  });
}
