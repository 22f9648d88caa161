/** Labelled inputs, and forms that say what became of them. */
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

/** A form whose failure is a sentence beside the button. `submit` answers what to say when it went well. */
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
