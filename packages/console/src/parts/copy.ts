/** A shell command with a copy button. */
import { fill, h, icon } from '../dom.ts';

export interface Command {
  element: HTMLElement;
  set(text: string): void;
}

export function command(label: string, text = ''): Command {
  const code = h('code', {}, text);
  const button = copyButton(() => code.textContent ?? '');
  const block = h('pre', { tabindex: 0, role: 'region', 'aria-label': label }, code);
  return {
    element: h('div', { class: 'command' }, block, button),
    set: (next) => {
      if (code.textContent !== next) code.textContent = next;
    },
  };
}

export function copyButton(text: () => string): HTMLButtonElement {
  const label = h('span', {}, 'Copy');
  const button = h(
    'button',
    { class: 'button small', type: 'button', 'aria-live': 'polite' },
    icon('copy'),
    label,
  );
  button.addEventListener('click', async () => {
    const copied = await copy(text());
    fill(button, icon(copied ? 'done' : 'close'), copied ? 'Copied' : 'Copy failed');
    setTimeout(() => fill(button, icon('copy'), label), 2_000);
  });
  return button;
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
