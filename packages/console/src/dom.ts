/** Creates elements. Text is never parsed as HTML: attackers choose host names. */

type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | null | undefined;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
export type Props = Readonly<Record<string, Value | Handlers>> & { readonly on?: Handlers };

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  const { on = {}, ...attributes } = props;
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value as Value);
  for (const [name, handler] of Object.entries(on)) element.addEventListener(name, handler as EventListener);
  fill(element, ...children);
  return element;
}

/** A button that does not submit a form. */
export function button(props: Props, click: () => void, ...children: Child[]): HTMLButtonElement {
  return h('button', { class: 'button', type: 'button', ...props, on: { click } }, ...children);
}

/** Replaces all children. */
export function fill(element: Element, ...children: Child[]): void {
  const shown = children.filter((child) => child !== null && child !== undefined && child !== false);
  element.replaceChildren(...shown.map((child) => (typeof child === 'string' ? visibleText(child) : child)));
}

/** Replaces all children after a refresh. The button with the same `data-focus` keeps the focus. */
export function refill(element: Element, ...children: Child[]): void {
  const { activeElement } = document;
  const focused = element.contains(activeElement) ? activeElement?.getAttribute('data-focus') : null;
  fill(element, ...children);
  if (focused) element.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (typeof value === 'string' && (name === 'title' || name.startsWith('aria-')))
    element.setAttribute(name, visibleText(value));
  else element.setAttribute(name, value === true ? '' : String(value));
}

/** Shows format characters as \\uXXXX: they can make one host name look like another, or reverse the text after it. */
export function visibleText(text: string): string {
  return text.replace(/\p{Cf}/gu, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}

/** For labels, which refer to elements by ID. */
export function uniqueId(): string {
  return `id-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
}

const SHAPES = {
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 12.5l4.5 4.5L19 7.5',
  download: 'M12 4v11m-5-5 5 5 5-5M5 20h14',
  search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 20 20',
  close: 'M6 6l12 12M18 6 6 18',
  down: 'M7 10l5 5 5-5',
  back: 'M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3',
  pause: 'M9 6v12M15 6v12',
  light:
    'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v1.5M12 19.5V21M4.5 12H3M21 12h-1.5M6.7 6.7 5.6 5.6M18.4 18.4l-1.1-1.1M6.7 17.3l-1.1 1.1M18.4 5.6l-1.1 1.1',
  dark: 'M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z',
  plus: 'M12 5v14M5 12h14',
  table: 'M4 5h16v14H4zM4 10h16M4 14.5h16M10 10v9',
  code: 'M8 8l-4 4 4 4M16 8l4 4-4 4M13.5 6l-3 12',
  edit: 'M4 20h4L19 9l-4-4L4 16z',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2',
  globe: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c5 5 5 13 0 18M12 3c-5 5-5 13 0 18',
  server: 'M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01',
} as const;

export type IconName = keyof typeof SHAPES;

/** Hidden from screen readers, so every icon needs a text label. */
export function icon(name: IconName): SVGSVGElement {
  const attributes = { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' };
  return svg('svg', attributes, svg('path', { d: SHAPES[name] }));
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>>,
  ...children: Node[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
