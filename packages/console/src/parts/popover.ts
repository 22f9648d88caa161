/** A button that opens a small panel under it; Escape, a click elsewhere or leaving it by keyboard closes it. */
import { h, uniqueId } from '../dom.ts';

export interface Popover {
  element: HTMLElement;
  button: HTMLButtonElement;
  close(): void;
}

export function popover(button: HTMLButtonElement, label: string, panel: Node, opened?: () => void): Popover {
  const id = uniqueId();
  const box = h('div', { class: 'popover', id, role: 'dialog', 'aria-label': label, hidden: true }, panel);
  const element = h('div', { class: 'popover-anchor' }, button, box);
  button.setAttribute('aria-expanded', 'false');
  button.setAttribute('aria-controls', id);
  button.setAttribute('aria-haspopup', 'dialog');

  const outside = (event: Event) => {
    if (event.target instanceof Node && !element.contains(event.target)) close();
  };
  function open(): void {
    box.hidden = false;
    button.setAttribute('aria-expanded', 'true');
    // Narrow screens: never beyond the edge.
    box.classList.toggle('leftwards', button.getBoundingClientRect().left + box.offsetWidth > innerWidth - 8);
    document.addEventListener('pointerdown', outside);
    box.querySelector<HTMLElement>('input, select, button')?.focus();
    opened?.();
  }
  function close(): void {
    box.hidden = true;
    button.setAttribute('aria-expanded', 'false');
    document.removeEventListener('pointerdown', outside);
  }
  button.addEventListener('click', () => (box.hidden ? open() : close()));
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || box.hidden) return;
    event.stopPropagation();
    close();
    button.focus();
  });
  element.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) close();
  });
  return { element, button, close };
}
