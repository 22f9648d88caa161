/** A question that must be answered before anything else. */
import { h, uniqueId } from '../dom.ts';

/** Shows the content in the middle of the page; answers how to close it. */
export function dialog(title: string, content: HTMLElement): () => void {
  const id = uniqueId();
  const close = () => box.close();
  const cancel = h('button', { class: 'button', type: 'button', on: { click: close } }, 'Cancel');
  const box = h('dialog', { 'aria-labelledby': id }, h('h2', { id }, title), content, cancel);
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
  // The forms of this console end in a row of buttons; that is where cancelling belongs.
  content.querySelector('.form-end')?.append(cancel);
  return close;
}

/** For what cannot be undone. */
export function confirm(title: string, text: string, verb: string, act: () => void): void {
  const button = h('button', { class: 'button danger', type: 'button' }, verb);
  const content = h('div', {}, h('p', {}, text), h('div', { class: 'form-end' }, button));
  const close = dialog(title, content);
  button.addEventListener('click', () => {
    close();
    act();
  });
}
