/** A button that opens a panel. Escape, a click outside, or moving the focus away closes it. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

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
  const anchor = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    opener.current?.focus();
  };
  useEffect(() => {
    if (!isOpen) return;
    const outside = ({ target }: Event) => {
      if (target instanceof Node && !anchor.current?.contains(target)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [isOpen]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !isOpen) return;
    event.stopPropagation();
    close();
  };
  const onFocusOut = ({ relatedTarget }: FocusEvent) => {
    if (relatedTarget instanceof Node && !anchor.current?.contains(relatedTarget)) setOpen(false);
  };
  return (
    <div class="popover-anchor" ref={anchor} onKeyDown={onKeyDown} onFocusOut={onFocusOut}>
      <button
        ref={opener}
        type="button"
        class={className}
        title={title}
        aria-label={label}
        aria-pressed={pressed}
        aria-haspopup="dialog"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        {button}
      </button>
      {isOpen && (
        <PopoverBox id={id} name={name}>
          {children(close)}
        </PopoverBox>
      )}
    </div>
  );
}

function PopoverBox({ id, name, children }: { id: string; name: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [isLeftwards, setLeftwards] = useState(false);
  useLayoutEffect(() => {
    // Opens to the left if it would exceed the screen.
    const { left = 0, width = 0 } = box.current?.getBoundingClientRect() ?? {};
    setLeftwards(left + width > innerWidth - 8);
    box.current?.querySelector<HTMLElement>('input, select, button, a')?.focus();
  }, []);
  // Focusable, so that a click on a label or on text inside keeps the focus inside.
  return (
    <div
      class={`popover ${isLeftwards ? 'leftwards' : ''}`}
      id={id}
      role="dialog"
      aria-label={name}
      tabIndex={-1}
      ref={box}
    >
      {children}
    </div>
  );
}
