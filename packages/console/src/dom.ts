/** Elements by function call. Text is always set as text: a host name is whatever an attacker has sent. */

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
  element.append(...children.filter(isNode).map(visible));
  return element;
}

/** Puts other children in the place of all there are. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter(isNode).map(visible));
}

export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (typeof value === 'string' && (name === 'title' || name.startsWith('aria-')))
    element.setAttribute(name, visibleText(value));
  else element.setAttribute(name, value === true ? '' : String(value));
}

/** Format characters as \\uXXXX: raw, they make one host name look like another, or turn the text after it around. */
export function visibleText(text: string): string {
  return text.replace(/\p{Cf}/gu, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}

function visible(child: Node | string): Node | string {
  return typeof child === 'string' ? visibleText(child) : child;
}

/** An ID for labels that belong to something elsewhere in the page. */
export function uniqueId(): string {
  return `id-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
}

function isNode(child: Child): child is Node | string {
  return child !== null && child !== undefined && child !== false;
}
