/** Modal dialogs. A page renders one while it is open. */
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { Button } from './button.tsx';
import { Field, Form, type Values } from './form.tsx';

interface DialogProps {
  title: string;
  /** Called when the user closes it, also with Escape. */
  close(): void;
  /** `drawer`: at the side of the page. */
  class?: 'drawer';
  children: ComponentChildren;
}

export function Dialog({ title, close, class: className, children }: DialogProps) {
  const id = useId();
  const box = useRef<HTMLDialogElement>(null);
  const latest = useRef(close);
  latest.current = close;
  useLayoutEffect(() => {
    const dialog = box.current;
    const closed = () => latest.current();
    dialog?.showModal();
    dialog?.addEventListener('close', closed);
    return () => {
      // Closing returns the focus to the opener; removing the element would not.
      dialog?.removeEventListener('close', closed);
      dialog?.close();
    };
  }, []);
  return (
    <dialog
      class={className}
      aria-labelledby={id}
      ref={box}
      {...(className === 'drawer' ? { closedby: 'any' } : {})}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** What the action does, and that it cannot be undone. */
  children: ComponentChildren;
  verb: string;
  /** A text that the user has to type first, for what cannot be undone. */
  typed?: string;
  act(): Promise<unknown>;
  close(): void;
}

/** Asks before a destructive action. Closes when it has succeeded. */
export function Confirm({ typed, act, children, ...dialog }: ConfirmProps) {
  return (
    <FormDialog {...dialog} kind="danger" submit={act}>
      <p>{children}</p>
      {typed !== undefined && (
        <Field
          label={`Type ${typed} to confirm`}
          name="confirm"
          required
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          onInput={({ currentTarget: input }) =>
            input.setCustomValidity(input.value === typed ? '' : `Type ${typed} to confirm.`)
          }
        />
      )}
    </FormDialog>
  );
}

interface FormDialogProps {
  title: string;
  verb: string;
  /** Of the button. */
  kind?: string;
  children: ComponentChildren;
  submit(values: Values): Promise<unknown>;
  close(): void;
}

/** A form in a dialog, which closes when `submit` has succeeded. */
export function FormDialog({ title, children, submit, close, ...form }: FormDialogProps) {
  const submitted = async (values: Values) => {
    await submit(values);
    close();
  };
  const cancel = <Button onClick={close}>Cancel</Button>;
  return (
    <Dialog title={title} close={close}>
      <Form name={title} {...form} submit={submitted} end={cancel}>
        {children}
      </Form>
    </Dialog>
  );
}
