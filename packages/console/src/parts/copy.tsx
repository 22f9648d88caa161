/** Buttons that copy: a shell command, or a value in a table. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from './button.tsx';
import { Icon, type IconName } from './icon.tsx';

type Outcome = 'none' | 'copied' | 'failed';

const ICONS: Readonly<Record<Outcome, IconName>> = { none: 'copy', copied: 'done', failed: 'close' };

function useCopy(text: string | (() => string)) {
  const [outcome, setOutcome] = useState<Outcome>('none');
  useEffect(() => {
    if (outcome === 'none') return;
    const timer = setTimeout(() => setOutcome('none'), 2_000);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async () =>
    setOutcome((await copyText(typeof text === 'string' ? text : text())) ? 'copied' : 'failed');
  const label = (idle: string) => ({ none: idle, copied: 'Copied', failed: 'Copy failed' })[outcome];
  return { copy, label, icon: <Icon name={ICONS[outcome]} /> };
}

interface CopyButtonProps {
  /** A function is called when the text is copied. */
  text: string | (() => string);
  label?: string;
  kind?: string;
}

/** A button with a text. */
export function CopyButton({ text, label: idle = 'Copy', kind = 'small' }: CopyButtonProps) {
  const { copy, label, icon } = useCopy(text);
  return (
    <Button kind={kind} aria-live="polite" onClick={copy}>
      {icon}
      {label(idle)}
    </Button>
  );
}

interface CopyValueProps {
  text: string;
  /** What screen readers say, if it is not the text. */
  name?: string;
  children: ComponentChildren;
}

/** A value that is copied by a click on it. */
export function CopyValue({ text, name = text, children }: CopyValueProps) {
  const { copy, label, icon } = useCopy(text);
  return (
    <button
      class="copy-value"
      type="button"
      title={`Copy ${text}`}
      aria-label={label(`Copy ${name}`)}
      onClick={copy}
    >
      <span class="cut">{children}</span>
      {icon}
    </button>
  );
}

/** Browsers hide the clipboard API on pages without TLS, where execCommand may still work. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.className = 'offscreen';
    area.readOnly = true;
    area.value = text;
    // Inside a modal dialog: outside, it could not get the focus.
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    return copied;
  }
}
