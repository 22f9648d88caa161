/** Tables that scroll in their own box. */
import { button, h, type Props } from '../dom.ts';

/** A title, or a column that is aligned to the right. */
export type Column = string | { right: Node | string };
export type Cell = Node | string;

/** Columns of numbers. */
export function numbers(...titles: string[]): Column[] {
  return titles.map((title) => ({ right: title }));
}

/** A column of buttons, with a title for screen readers only. */
export function actions(): Column {
  return { right: h('span', { class: 'offscreen' }, 'Actions') };
}

export function table(
  name: string,
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
): HTMLElement {
  const row = (cells: readonly Cell[]) =>
    h('tr', {}, ...cells.map((cell, i) => h('td', { class: classOf(columns[i]) }, cell)));
  return h(
    'div',
    { class: 'table', tabindex: 0, role: 'region', 'aria-label': name, 'data-focus': name },
    h('table', {}, tableHead(columns), h('tbody', {}, ...rows.map(row))),
  );
}

export function tableHead(columns: readonly Column[], props: Props = {}): HTMLElement {
  const cell = (column: Column) =>
    h('th', { scope: 'col', class: classOf(column) }, typeof column === 'string' ? column : column.right);
  return h('thead', props, h('tr', {}, ...columns.map(cell)));
}

/** Numbers have digits of equal width. */
function classOf(column: Column | undefined): string | null {
  return typeof column === 'object' ? 'number' : null;
}

/** A button in a row of a table. `name` tells screen readers which row. */
export function rowButton(label: string, name: string, click: () => void): HTMLButtonElement {
  return button({ class: 'button small', 'aria-label': `${label} ${name}` }, click, label);
}

export function stateLabel(kind: 'active' | 'off' | 'silent', text: string): HTMLElement {
  return h('span', { class: `state ${kind}` }, text);
}
