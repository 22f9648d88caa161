/** A section of the dashboard with a title, actions and drawers. */
import { button, h, type IconName, icon, uniqueId } from '../dom.ts';

export interface Panel {
  element: HTMLElement;
  /** Next to the title. */
  extras: HTMLElement;
  body: HTMLElement;
  addAction(name: IconName, label: string, action: () => void): void;
  /** An action that shows or hides content below the body. `opened` is called each time it is shown. */
  addDrawer(name: IconName, label: string, content: Node, opened?: () => void): { isOpen(): boolean };
}

export function panel(title: string, className: string): Panel {
  const id = uniqueId();
  const extras = h('div', { class: 'extras' });
  const actions = h('div', { class: 'actions' });
  const body = h('div', { class: 'panel-body' });
  const drawers = h('div', { class: 'drawers' });
  const element = h(
    'section',
    { class: `panel ${className}`, 'aria-labelledby': id },
    h('header', {}, h('h2', { id }, title), extras, actions),
    body,
    drawers,
  );
  return {
    element,
    extras,
    body,
    addAction(name, label, action) {
      actions.append(button({ class: 'button quiet small' }, action, icon(name), label));
    },
    addDrawer(name, label, content, opened) {
      const drawer = h('div', { class: 'drawer', id: uniqueId(), hidden: true }, content);
      const toggle = () => {
        drawer.hidden = !drawer.hidden;
        element.ariaExpanded = String(!drawer.hidden);
        if (!drawer.hidden) opened?.();
      };
      const props = { class: 'button quiet small', 'aria-expanded': 'false', 'aria-controls': drawer.id };
      const element = button(props, toggle, icon(name), label);
      actions.append(element);
      drawers.append(drawer);
      return { isOpen: () => !drawer.hidden };
    },
  };
}
