/** Roles, access keys and password of a user. */
import { useState } from 'preact/hooks';
import type { ManagedUser, NewAccessKey, Role, Roles } from '../api.ts';
import { useApp } from '../app.ts';
import { Button } from '../parts/button.tsx';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { keyValues, Secret, useKeyActions } from '../parts/keys.tsx';
import { sentence } from '../parts/states.tsx';
import { useAction } from '../use-query.ts';
import { ROLE_NAMES, ROLES, type SectionProps } from './names.ts';

interface EditUserProps extends SectionProps {
  user: ManagedUser;
  reset(): void;
  close(): void;
}

export function EditUser({ user, administration, reload, reset, close }: EditUserProps) {
  const { session } = useApp();
  const isSelf = user.id === session.user.id;
  return (
    <Dialog title={`Edit ${user.name}`} close={close}>
      <div class="edit-user">
        <RolesEditor user={user} administration={administration} reload={reload} />
        {user.access !== 'console' && <UserKeys user={user} reload={reload} />}
        <section aria-label="Password">
          <h3>Password</h3>
          {isSelf ? (
            <p class="hint">Change your own password under My credentials.</p>
          ) : (
            <div class="form-end">
              <Button onClick={reset}>Reset password</Button>
            </div>
          )}
        </section>
        <div class="form-end">
          <Button onClick={close}>Close</Button>
        </div>
      </div>
    </Dialog>
  );
}

function RolesEditor({ user, administration, reload }: SectionProps & { user: ManagedUser }) {
  const app = useApp();
  const { domain_id, projects, users } = administration;
  const [roles, setRoles] = useState<Roles>(user.roles);
  const [outcome, setOutcome] = useState('');
  const [isConfirming, setConfirming] = useState(false);
  const { run, problem, isRunning } = useAction();
  const isSelf = user.id === app.session.user.id;
  const administers = (held: Roles) => held[domain_id]?.includes('admin') ?? false;
  const losesOwn = isSelf && administers(user.roles) && !administers(roles);
  const isLast = !users.some(
    ({ id, enabled, roles: held }) => id !== user.id && enabled && administers(held),
  );
  const toggle = (scope: string, role: Role) => {
    const held = roles[scope] ?? [];
    setOutcome('');
    setRoles({
      ...roles,
      [scope]: held.includes(role) ? held.filter((one) => one !== role) : [...held, role],
    });
  };
  const scopes = [{ id: domain_id, name: 'All projects' }, ...projects];
  const save = async () => {
    const confirm = isLast ? user.name : undefined;
    const has = (held: Roles, scope: string, role: Role) => held[scope]?.includes(role) ?? false;
    // The role that permits these changes goes last: it is that of the domain.
    const changes = scopes.toReversed().flatMap(({ id: scope, name }) =>
      ROLES.filter((role) => has(user.roles, scope, role) !== has(roles, scope, role)).map((role) => {
        const verb = has(roles, scope, role) ? ('grant' as const) : ('revoke' as const);
        return { verb, scope, role, text: `${verb} ${role} in ${name}` };
      }),
    );
    let saved = 0;
    try {
      for (const { verb, scope, role } of changes) {
        await app.api.changeRole(verb, { user: user.id, scope, role, domain_id }, confirm);
        saved++;
      }
      if (isSelf) await app.reload();
      setOutcome('Roles saved.');
    } catch (failure) {
      if (saved === 0 || app.handleSignedOut(failure)) throw failure;
      const texts = (part: typeof changes) => part.map(({ text }) => text).join(', ');
      throw new Error(
        `${sentence(failure)} Saved: ${texts(changes.slice(0, saved))}. Not saved: ${texts(changes.slice(saved))}.`,
      );
    } finally {
      reload();
    }
  };
  return (
    <section aria-label="Roles">
      <h3>Roles</h3>
      <div class="roles" tabIndex={0} role="region" aria-label="Roles by project">
        {scopes.map(({ id, name }) => (
          <fieldset key={id}>
            <legend>{name}</legend>
            {ROLES.map((role) => (
              <label key={role} title={ROLE_NAMES[role]}>
                <input
                  type="checkbox"
                  checked={roles[id]?.includes(role) ?? false}
                  onChange={() => toggle(id, role)}
                />
                {role}
              </label>
            ))}
          </fieldset>
        ))}
      </div>
      <div class="form-end">
        <Button
          kind="primary"
          disabled={isRunning}
          onClick={() => (losesOwn ? setConfirming(true) : void run(save))}
        >
          Save roles
        </Button>
        <p class={`outcome ${problem === '' ? '' : 'problem'}`} role="status">
          {problem || outcome}
        </p>
      </div>
      {isConfirming && (
        <Confirm
          title="Give up administration?"
          verb="Save roles"
          {...(isLast ? { typed: user.name } : {})}
          act={save}
          close={() => setConfirming(false)}
        >
          {isLast
            ? 'You are the last administrator of the domain. Afterwards nobody can manage its users and projects, except with the command line on the server.'
            : 'You will no longer be able to manage users and projects.'}
        </Confirm>
      )}
    </section>
  );
}

function UserKeys({ user, reload }: { user: ManagedUser; reload(): void }) {
  const { api, session } = useApp();
  const [created, setCreated] = useState<NewAccessKey | null>(null);
  const { change, buttons, messages, isRunning } = useKeyActions(reload, (access) =>
    setCreated((key) => (key?.access === access ? null : key)),
  );
  const create = () => change(async () => setCreated(await api.addKey(user.id)));
  return (
    <section aria-label="Access keys">
      <h3>Access keys</h3>
      {user.keys.length === 0 && <p class="hint">No access keys.</p>}
      {user.keys.map((key) => (
        <div class="key-row" key={key.access}>
          <span>
            <code>{key.access}</code> <span class="faint">{key.description}</span>
          </span>
          {buttons(key)}
        </div>
      ))}
      {created !== null && (
        <Secret values={keyValues(created)}>Copy the key now; the secret won't be shown again.</Secret>
      )}
      {messages}
      {user.keys.length < session.keys_limit && (
        <div class="form-end">
          <Button disabled={isRunning} onClick={create}>
            Create access key
          </Button>
        </div>
      )}
    </section>
  );
}
