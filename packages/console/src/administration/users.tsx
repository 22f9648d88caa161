/** The users of the domain. */
import { useState } from 'preact/hooks';
import type { AccessType, Administration, ManagedUser, Role } from '../api.ts';
import { useApp } from '../app.ts';
import { date } from '../format.ts';
import { Confirm, Dialog, FormDialog } from '../parts/dialog.tsx';
import { Choice, Field, type Values } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Icon } from '../parts/icon.tsx';
import { SecretValue } from '../parts/secret.tsx';
import { Problem } from '../parts/states.tsx';
import { byNumber, byText, type Column, RowButton, Table } from '../parts/table.tsx';
import { useAction } from '../use-query.ts';
import { ACCESS_NAMES, Enabled, ROLE_NAMES, type SectionProps } from './names.tsx';
import { EditUser } from './user-editor.tsx';

/** More users than are seen at a glance. */
const SEARCH_MIN = 10;

/** A dialog that is open, with the ID of its user: the list may be loaded again meanwhile. */
type UserDialog =
  | { kind: 'new' }
  | { kind: 'edit' | 'reset' | 'disable' | 'delete'; id: string }
  | { kind: 'password'; name: string; password: string };

export function Users({ administration, reload }: SectionProps) {
  const { api, session, zone, now, ingestKeys } = useApp();
  const { run, problem } = useAction();
  const [dialog, setDialog] = useState<UserDialog | null>(null);
  const [search, setSearch] = useState('');
  const found = administration.users.filter(({ name }) =>
    name.toLowerCase().includes(search.trim().toLowerCase()),
  );
  const close = () => setDialog(null);
  /** For dialogs that the dialog with the password replaces. */
  const closeIf = (kind: UserDialog['kind']) => setDialog((open) => (open?.kind === kind ? null : open));
  const enable = async (id: string) => {
    if (await run(() => api.changeUser(id, { enabled: true }))) reload();
  };
  const columns: Column<ManagedUser>[] = [
    {
      title: 'User',
      cell: ({ id, name, access, create_time }) => (
        <div class="stacked">
          <span>
            <strong class="cut" title={name}>
              {name}
            </strong>
            {id === session.user.id && <span class="faint"> (you)</span>}
          </span>
          <span class="hint">{`${ACCESS_NAMES[access]}, created ${date(Date.parse(create_time), zone, now())}`}</span>
        </div>
      ),
      compare: byText(({ name }) => name),
    },
    {
      title: 'Roles',
      cell: ({ roles }) => <span class="wrap">{rolesText(roles, administration)}</span>,
    },
    {
      title: 'Keys',
      isNumber: true,
      cell: ({ keys }) => <span class={keys.length === 0 ? 'faint' : ''}>{keys.length}</span>,
      compare: byNumber(({ keys }) => keys.length),
    },
    {
      title: 'State',
      cell: ({ enabled }) => <Enabled enabled={enabled} />,
      compare: byNumber(({ enabled }) => Number(enabled)),
    },
    {
      title: 'Actions',
      hideTitle: true,
      isNumber: true,
      cell: ({ id, name, enabled }) => (
        <div class="buttons">
          <RowButton label="Edit" name={name} onClick={() => setDialog({ kind: 'edit', id })} />
          {id !== session.user.id && (
            <>
              <RowButton
                label={enabled ? 'Disable' : 'Enable'}
                name={name}
                onClick={() => (enabled ? setDialog({ kind: 'disable', id }) : void enable(id))}
              />
              <RowButton label="Delete" name={name} onClick={() => setDialog({ kind: 'delete', id })} />
            </>
          )}
        </div>
      ),
    },
  ];
  const user =
    dialog !== null && 'id' in dialog ? administration.users.find(({ id }) => id === dialog.id) : undefined;
  return (
    <section>
      <PageHead level={2} title="Users">
        <button class="button primary" type="button" onClick={() => setDialog({ kind: 'new' })}>
          <Icon name="plus" />
          New user
        </button>
      </PageHead>
      {administration.users.length > SEARCH_MIN && (
        <div class="with-icon">
          <Icon name="search" />
          <input
            type="search"
            placeholder="Find a user"
            aria-label="Find a user"
            spellcheck={false}
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </div>
      )}
      <Problem text={problem} />
      {found.length === 0 ? (
        <p class="empty">No matching user.</p>
      ) : (
        <Table
          name="Users"
          columns={columns}
          rows={found}
          keyOf={({ id }) => id}
          initialSort={{ by: 'User', descending: false }}
        />
      )}
      {dialog?.kind === 'new' && (
        <NewUser
          administration={administration}
          created={(name, password) => {
            setDialog({ kind: 'password', name, password });
            reload();
          }}
          close={() => closeIf('new')}
        />
      )}
      {dialog?.kind === 'password' && (
        <PasswordDialog name={dialog.name} password={dialog.password} close={close} />
      )}
      {user !== undefined && dialog?.kind === 'edit' && (
        <EditUser
          user={user}
          administration={administration}
          reload={reload}
          reset={() => setDialog({ kind: 'reset', id: user.id })}
          close={close}
        />
      )}
      {user !== undefined && dialog?.kind === 'reset' && (
        <Confirm
          key="reset"
          title={`Reset the password of ${user.name}?`}
          verb="Reset password"
          act={async () => {
            const password = newPassword();
            await api.changeUser(user.id, { password });
            setDialog({ kind: 'password', name: user.name, password });
          }}
          close={() => closeIf('reset')}
        >
          {`The old password stops working, and all sessions and tokens of ${user.name} end. Access keys keep working.`}
        </Confirm>
      )}
      {user !== undefined && dialog?.kind === 'disable' && (
        <Confirm
          key="disable"
          title={`Disable ${user.name}?`}
          verb="Disable user"
          act={async () => {
            await api.changeUser(user.id, { enabled: false });
            reload();
          }}
          close={close}
        >
          {`${user.name} is signed out, and tokens and access keys stop working within a second. You can enable the user again.`}
        </Confirm>
      )}
      {user !== undefined && dialog?.kind === 'delete' && (
        <Confirm
          key="delete"
          title={`Delete ${user.name}?`}
          verb="Delete user"
          act={async () => {
            await api.removeUser(user.id);
            ingestKeys.clear();
            reload();
          }}
          close={close}
        >
          {`${user.name} is signed out, and ${keysText(user.keys.length)} Statistics stay. This cannot be undone.`}
        </Confirm>
      )}
    </section>
  );
}

function keysText(keys: number): string {
  if (keys === 0) return 'loses all roles.';
  return `loses all roles and ${keys === 1 ? 'the access key' : `${keys} access keys`}: programs that use ${keys === 1 ? 'it' : 'them'} get errors.`;
}

interface PasswordDialogProps {
  name: string;
  password: string;
  close(): void;
}

function PasswordDialog({ name, password, close }: PasswordDialogProps) {
  return (
    <Dialog title={`Password of ${name}`} close={close}>
      <div class="secret">
        <p>Generated password. Copy it now; it won't be shown again.</p>
        <dl>
          <SecretValue name="Password" value={password} />
        </dl>
        <div class="form-end">
          <button class="button primary" type="button" onClick={close}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}

interface NewUserProps {
  administration: Administration;
  created(name: string, password: string): void;
  close(): void;
}

function NewUser({ administration: { domain_id, projects }, created, close }: NewUserProps) {
  const { api, project } = useApp();
  const submit = async ({ name = '', access, role, scope = '' }: Values) => {
    const password = newPassword();
    const user = await api.addUser({ name, access: access as AccessType, password });
    try {
      await api.changeRole('grant', { user, scope, role: role as Role, domain_id });
    } catch (failure) {
      await api.removeUser(user);
      throw failure;
    }
    created(name, password);
  };
  const scopes = [
    ...projects.map(({ id, name }) => [id, name] as const),
    [domain_id, 'All projects of the domain'] as const,
  ];
  return (
    <FormDialog title="New user" verb="Create" submit={submit} close={close}>
      <Field
        label="Name"
        name="name"
        required
        maxLength={64}
        autocomplete="off"
        autocapitalize="none"
        hint="A password is generated, and shown in the next step."
      />
      <Choice label="Access (cannot be changed later)" name="access" options={Object.entries(ACCESS_NAMES)} />
      <Choice label="Role" name="role" options={Object.entries(ROLE_NAMES)} />
      <Choice label="Project" name="scope" options={scopes} initial={project?.id} />
    </FormDialog>
  );
}

/** As strong as those that the service generates: 144 random bits, in characters that need no escaping. */
function newPassword(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_');
}

function rolesText(roles: ManagedUser['roles'], { domain_id, projects }: Administration): string {
  const scopeName = (scope: string) =>
    scope === domain_id ? 'all projects' : (projects.find(({ id }) => id === scope)?.name ?? scope);
  const held = Object.entries(roles).filter(([, list]) => list.length > 0);
  return held.map(([scope, list]) => `${list.join(', ')} in ${scopeName(scope)}`).join('; ') || 'no role';
}
