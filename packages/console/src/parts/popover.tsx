/** A button that opens a panel. The browser closes it with Escape or a click outside, and returns the focus. */
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

interface PopoverProps {
  /** The name of the panel. */
  name: string;
  /** The name of the button, if its content is not enough. */
  label?: string;
  title?: string | undefined;
  button: ComponentChildren;
  class?: string | undefined;
  pressed?: boolean | undefined;
  children(close: () => void): ComponentChildren;
}

export function Popover({ name, label, title, button, class: className, pressed, children }: PopoverProps) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen || opener.current === null || box.current === null) return;
    const { left, bottom } = opener.current.getBoundingClientRect();
    // Within the screen, below the button.
    const leftMax = document.documentElement.clientWidth - box.current.offsetWidth - 8;
    box.current.style.left = `${Math.max(8, Math.min(left, leftMax))}px`;
    box.current.style.top = `${bottom + scrollY + 4}px`;
    box.current.querySelector<HTMLElement>('input, select, button, a')?.focus();
  }, [isOpen]);
  return (
    <div class="popover-anchor">
      <button
        ref={opener}
        type="button"
        class={className}
        title={title}
        aria-label={label}
        aria-pressed={pressed}
        aria-haspopup="dialog"
        aria-expanded={isOpen}
        popovertarget={id}
      >
        {button}
      </button>
      <div
        class="popover"
        id={id}
        popover="auto"
        role="dialog"
        aria-label={name}
        ref={box}
        onToggle={(event) => setOpen((event as unknown as ToggleEvent).newState === 'open')}
      >
        {isOpen && children(() => box.current?.hidePopover())}
      </div>
    </div>
  );
}
