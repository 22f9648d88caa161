/** Buttons that copy: a shell command, or a value in a table. */
import { button, fill, h, type IconName, icon } from '../dom.ts';

export interface Command {
  element: HTMLElement;
  set(text: string): void;
}

export function command(label: string, text = ''): Command {
  const code = h('code', {}, text);
  const block = h('pre', { tabindex: 0, role: 'region', 'aria-label': label }, code);
  const show = (name: IconName, verb: string) => fill(copyButton, icon(name), verb);
  const copyButton = button({ class: 'button small', 'aria-live': 'polite' }, async () => {
    if (await copy(code.textContent ?? '')) show('done', 'Copied');
    else show('close', 'Copy failed');
    setTimeout(() => show('copy', 'Copy'), 2_000);
  });
  show('copy', 'Copy');
  return {
    element: h('div', { class: 'command' }, block, copyButton),
    set: (next) => {
      if (code.textContent !== next) code.textContent = next;
    },
  };
}

/** Only an icon. The name for screen readers says what it copies. */
export function copyButton(text: string): HTMLElement {
  const name = `Copy ${text}`;
  const show = (icons: IconName, label: string) =>
    fill(element, icon(icons), h('span', { class: 'offscreen' }, label));
  const props = { class: 'button quiet small', title: name, 'aria-live': 'polite', 'data-focus': name };
  const element = button(props, async () => {
    if (await copy(text)) show('done', 'Copied');
    else show('close', 'Copy failed');
    setTimeout(() => show('copy', name), 2_000);
  });
  show('copy', name);
  return element;
}

/** Browsers hide the clipboard API on pages without TLS, where execCommand may still work. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { class: 'offscreen', readonly: true, 'aria-hidden': 'true' }, text);
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}
