/** Makes text safe to show: attackers choose host names and URLs. Preact never parses it as HTML. */
import { options, type VNode } from 'preact';

/** Shows invisible characters as \\uXXXX: they can make one host name look like another, or reverse the text after it. */
export function visibleText(text: string): string {
  return text.replace(/[\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]/gu, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}

/** Applies `visibleText` to all text, tooltips and labels that Preact renders. */
export function installVisibleText(): void {
  options.vnode = (vnode: VNode) => {
    const { type, props } = vnode as { type: unknown; props: unknown };
    // A text has no type, and itself as properties.
    if (type === null && typeof props === 'string') Object.assign(vnode, { props: visibleText(props) });
    if (typeof type !== 'string') return;
    for (const [name, value] of Object.entries(props as Record<string, unknown>)) {
      if (typeof value === 'string' && (name === 'title' || name.startsWith('aria-')))
        Object.assign(props as object, { [name]: visibleText(value) });
    }
  };
}
