/** What users do with access keys: their own, and as administrators those of others. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { AccessKey } from '../api.ts';
import { useApp } from '../app.ts';
import { useAction } from '../use-query.ts';
import { CopyButton } from './copy.tsx';
import { Confirm } from './dialog.tsx';
import { Problem } from './states.tsx';
import { RowButton } from './table.tsx';

/** `removed` is called with the ID of a deleted key. */
export function useKeyActions(reload: () => void, removed?: (access: string) => void) {
  const { api, ingestKeys } = useApp();
  const { run, problem, isRunning } = useAction();
  const [deleting, setDeleting] = useState<string | null>(null);
  const change = async (act: () => Promise<unknown>) => {
    if (await run(act)) reload();
  };
  const buttons = ({ access, status }: AccessKey) => {
    const next = status === 'active' ? 'inactive' : 'active';
    const toggle = () => change(() => api.setKeyStatus(access, next));
    return (
      <div class="buttons">
        <RowButton label={next === 'active' ? 'Enable' : 'Disable'} name={access} onClick={toggle} />
        <RowButton label="Delete" name={access} onClick={() => setDeleting(access)} />
      </div>
    );
  };
  const remove = async (access: string) => {
    await api.removeKey(access);
    // The first-run page must not show it again.
    ingestKeys.clear();
    removed?.(access);
    reload();
  };
  const messages = (
    <>
      <Problem text={problem} />
      {deleting !== null && (
        <Confirm
          title={`Delete ${deleting}?`}
          verb="Delete key"
          act={() => remove(deleting)}
          close={() => setDeleting(null)}
        >
          Applications using this key lose access immediately.
        </Confirm>
      )}
    </>
  );
  return { change, buttons, messages, isRunning };
}

interface SecretProps {
  /** What it is, and that it is not shown again. */
  children: ComponentChildren;
  values: Readonly<Record<string, string>>;
}

/** Values that are shown once, with buttons that copy them. */
export function Secret({ children, values }: SecretProps) {
  return (
    <div class="secret" role="status">
      <p>{children}</p>
      <dl>
        {Object.entries(values).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <code>{value}</code>
              <CopyButton text={value} label={`Copy ${name.charAt(0).toLowerCase()}${name.slice(1)}`} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

/** An access key that was just created, for `Secret`. */
export function keyValues({ access, secret }: { access: string; secret: string }) {
  return { 'Access key ID': access, 'Secret access key': secret };
}
