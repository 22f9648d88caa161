/** Modal dialogs. A page renders one while it is open. */
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useAction } from '../use-query.ts';
import { Button } from './button.tsx';
import { Field, Form, type Values } from './form.tsx';
import { Problem } from './states.tsx';

interface DialogProps {
  title: string;
  /** Called when the user closes it, also with Escape. */
  close(): void;
  children: ComponentChildren;
}

export function Dialog({ title, close, children }: DialogProps) {
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
    <dialog aria-labelledby={id} ref={box}>
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
export function Confirm({ title, children, verb, typed, act, close }: ConfirmProps) {
  const { run, problem, isRunning } = useAction();
  const [text, setText] = useState('');
  const isTyped = typed === undefined || text === typed;
  const confirmed = async () => {
    if (await run(act)) close();
  };
  return (
    <Dialog title={title} close={close}>
      <div>
        <p>{children}</p>
        {typed !== undefined && (
          <Field
            label={`Type ${typed} to confirm`}
            name="confirm"
            autocomplete="off"
            autocapitalize="none"
            spellcheck={false}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        )}
        <Problem text={problem} />
        <div class="form-end">
          <Button kind="danger" disabled={isRunning || !isTyped} onClick={confirmed}>
            {verb}
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </div>
    </Dialog>
  );
}

interface FormDialogProps {
  title: string;
  verb: string;
  children: ComponentChildren;
  submit(values: Values): Promise<unknown>;
  close(): void;
}

/** A form in a dialog, which closes when `submit` has succeeded. */
export function FormDialog({ title, verb, children, submit, close }: FormDialogProps) {
  const submitted = async (values: Values) => {
    await submit(values);
    close();
  };
  const cancel = <Button onClick={close}>Cancel</Button>;
  return (
    <Dialog title={title} close={close}>
      <Form name={title} verb={verb} submit={submitted} end={cancel}>
        {children}
      </Form>
    </Dialog>
  );
}
