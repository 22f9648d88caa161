/** Labelled inputs and forms. The values of the inputs are passed to `submit` by name. */
import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useId, useRef, useState } from 'preact/hooks';
import { useAction } from '../use-query.ts';
import { Button } from './button.tsx';

export type Values = Readonly<Record<string, string>>;

type FieldProps = InputHTMLAttributes & { label: string; name: string; hint?: string };

export function Field({ label, hint, ...input }: FieldProps) {
  const id = useId();
  const described = hint === undefined ? {} : { 'aria-describedby': `${id}-hint` };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} {...input} {...described} />
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  name: string;
  options: readonly (readonly [value: string, text: string])[];
  /** The value that is selected first. */
  initial?: string | undefined;
}

export function Choice({ label, name, options, initial }: ChoiceProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} name={name}>
        {options.map(([value, text]) => (
          <option key={value} value={value} selected={value === initial}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

interface FormProps {
  /** For screen readers. */
  name: string;
  /** The text of the button. */
  verb: string;
  kind?: string;
  children: ComponentChildren;
  /** May resolve to a success message. */
  submit(values: Values): Promise<unknown>;
  /** Beside the button. */
  end?: ComponentChildren;
}

/** Shows errors next to the button. The inputs are cleared when `submit` has succeeded. */
export function Form({ name, verb, kind = 'primary', children, submit, end }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  const { run, problem, isRunning } = useAction();
  const [outcome, setOutcome] = useState('');
  async function onSubmit(event: Event): Promise<void> {
    event.preventDefault();
    if (form.current === null) return;
    setOutcome('');
    const values = valuesOf(form.current);
    await run(async () => {
      const message = await submit(values);
      setOutcome(typeof message === 'string' ? message : '');
      form.current?.reset();
    });
  }
  return (
    <form class="form" aria-label={name} ref={form} onSubmit={onSubmit}>
      {children}
      <div class="form-end">
        <Button kind={kind} type="submit" disabled={isRunning}>
          {verb}
        </Button>
        {end}
        <p class={`outcome ${problem === '' ? '' : 'problem'}`} role="status">
          {problem || outcome}
        </p>
      </div>
    </form>
  );
}

function valuesOf(form: HTMLFormElement): Values {
  const entries = [...new FormData(form)].map(([name, value]) => [name, String(value)]);
  return Object.fromEntries(entries);
}
