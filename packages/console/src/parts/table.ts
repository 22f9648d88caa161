/** Tables: plain ones, with a name, that scroll inside their own box when they are long or wide. */
import { h } from '../dom.ts';

export interface Column {
  title: string;
  /** Right aligned, in figures of equal width. */
  number?: boolean;
}

export type Cell = Node | string;

export function table(
  name: string,
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
): HTMLElement {
  const kind = (i: number) => (columns[i]?.number ? 'number' : null);
  return h(
    'div',
    { class: 'table', tabindex: 0, role: 'region', 'aria-label': name },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h('tr', {}, ...columns.map(({ title }, i) => h('th', { scope: 'col', class: kind(i) }, title))),
      ),
      h(
        'tbody',
        {},
        ...rows.map((row) => h('tr', {}, ...row.map((cell, i) => h('td', { class: kind(i) }, cell)))),
      ),
    ),
  );
}
