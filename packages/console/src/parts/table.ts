/** Tables that scroll in their own box. */
import { h } from '../dom.ts';

export interface Column {
  title: string;
  /** Right-aligned, with digits of equal width. */
  number?: boolean;
  /** Buttons: right-aligned, with a title for screen readers only. */
  actions?: boolean;
}

export type Cell = Node | string;

export function table(
  name: string,
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
): HTMLElement {
  const kind = (i: number) => (columns[i]?.number || columns[i]?.actions ? 'number' : null);
  return h(
    'div',
    { class: 'table', tabindex: 0, role: 'region', 'aria-label': name },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          ...columns.map(({ title, actions }, i) =>
            h(
              'th',
              { scope: 'col', class: kind(i) },
              actions ? h('span', { class: 'offscreen' }, title) : title,
            ),
          ),
        ),
      ),
      h(
        'tbody',
        {},
        ...rows.map((row) => h('tr', {}, ...row.map((cell, i) => h('td', { class: kind(i) }, cell)))),
      ),
    ),
  );
}
