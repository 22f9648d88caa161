/** Shown at any URL until the user has signed in. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Api, Session } from '../api.ts';
import { Button } from '../parts/button.tsx';
import { Field } from '../parts/form.tsx';
import { Logo } from '../parts/frame.tsx';
import { Problem, sentence } from '../parts/states.tsx';

interface SignInProps {
  api: Api;
  /** Why the user has to sign in again, or empty. */
  notice: string;
  signedIn(session: Session): void;
}

export function SignInPage({ api, notice, signedIn }: SignInProps) {
  const form = useRef<HTMLFormElement>(null);
  const [problem, setProblem] = useState('');
  const [isRunning, setRunning] = useState(false);
  useEffect(() => {
    document.title = 'Sign in · wafstat';
    form.current?.querySelector('input')?.focus();
  }, []);
  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (form.current === null) return;
    const values = new FormData(form.current);
    const text = (name: string) => String(values.get(name) ?? '');
    setProblem('');
    setRunning(true);
    try {
      signedIn(await api.signIn({ user: text('user'), domain: text('domain'), password: text('password') }));
    } catch (failure) {
      setProblem(sentence(failure));
      setRunning(false);
      form.current?.querySelector<HTMLInputElement>('[name=password]')?.select();
    }
  }
  const common = { autocapitalize: 'none', required: true } as const;
  return (
    <main class="alone">
      <form class="card sign-in" ref={form} onSubmit={submit}>
        <div class="brand">
          <Logo />
          <h1>wafstat</h1>
        </div>
        <p class="hint">Statistics for your web application firewall</p>
        {notice !== '' && (
          <p class="session-notice" role="alert">
            {notice}
          </p>
        )}
        <Field {...common} label="User" name="user" autocomplete="username" />
        <Field {...common} label="Domain" name="domain" defaultValue="default" autocomplete="organization" />
        <Field {...common} label="Password" name="password" type="password" autocomplete="current-password" />
        <Problem text={problem} />
        <Button kind="primary" type="submit" disabled={isRunning}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
