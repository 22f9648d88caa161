/** Labelled inputs, forms and dialogs. */
import type { App } from '../app.ts';
import { button, h, type Props, uniqueId } from '../dom.ts';
import { sentence } from './states.ts';

export interface Field<Input> {
  element: HTMLElement;
  input: Input;
}

export function field(label: string, props: Props, hint?: string): Field<HTMLInputElement> {
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

export function choice(
  label: string,
  options: readonly (readonly [value: string, text: string])[],
): Field<HTMLSelectElement> {
  const id = uniqueId();
  const input = h('select', { id }, ...options.map(([value, text]) => h('option', { value }, text)));
  return { element: h('div', { class: 'field' }, h('label', { for: id }, label), input), input };
}

/** Shows errors next to the button. `submit` resolves to the success message. */
export function submitForm(
  app: App,
  name: string,
  verb: string,
  fields: readonly HTMLElement[],
  submit: () => Promise<string>,
): HTMLFormElement {
  const outcome = h('p', { class: 'outcome', role: 'status' });
  const submitButton = h('button', { class: 'button primary', type: 'submit' }, verb);
  const end = h('div', { class: 'form-end' }, submitButton, outcome);
  const form = h('form', { class: 'form', 'aria-label': name }, ...fields, end);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    submitButton.disabled = true;
    outcome.textContent = '';
    outcome.classList.remove('problem');
    try {
      outcome.textContent = await submit();
      form.reset();
    } catch (failure) {
      if (app.handleSignedOut(failure)) return;
      outcome.classList.add('problem');
      outcome.textContent = sentence(failure);
    } finally {
      submitButton.disabled = false;
    }
  });
  return form;
}

/** A form in a modal dialog, which closes when `submit` has succeeded. */
export function formDialog(
  app: App,
  title: string,
  verb: string,
  fields: readonly HTMLElement[],
  submit: () => Promise<void>,
  done: () => void,
): void {
  const form = submitForm(app, title, verb, fields, async () => {
    await submit();
    close();
    done();
    return '';
  });
  const close = dialog(title, form);
}

/** Asks before an action that cannot be undone. */
export function confirm(title: string, text: string, verb: string, act: () => void): void {
  const confirmed = () => {
    close();
    act();
  };
  const end = h('div', { class: 'form-end' }, button({ class: 'button danger' }, confirmed, verb));
  const close = dialog(title, h('div', {}, h('p', {}, text), end));
}

/** Opens a modal dialog, and adds Cancel to the buttons at the end of its content. Returns a function that closes it. */
function dialog(title: string, content: HTMLElement): () => void {
  const id = uniqueId();
  const close = () => box.close();
  const box = h('dialog', { 'aria-labelledby': id }, h('h2', { id }, title), content);
  content.querySelector('.form-end')?.append(button({}, close, 'Cancel'));
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
  return close;
}
