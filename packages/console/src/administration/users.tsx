/** The users of the domain. */
import { useState } from 'preact/hooks';
import type { AccessType, Administration, ManagedUser, Role } from '../api.ts';
import { useApp } from '../app.ts';
import { date } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { Confirm, Dialog, FormDialog } from '../parts/dialog.tsx';
import { Choice, Field, type Values } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Secret } from '../parts/keys.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { Problem, sentence } from '../parts/states.tsx';
import {
  actionsColumn,
  byText,
  type Column,
  enabledColumn,
  numberColumn,
  RowButton,
  RowName,
  Table,
} from '../parts/table.tsx';
import { useAction } from '../use-query.ts';
import { ACCESS_NAMES, ROLE_NAMES, type SectionProps } from './names.ts';
import { EditUser } from './user-editor.tsx';

/** More users than are seen at a glance. */
const SEARCH_MIN = 10;

/** A dialog that is open, with the ID of its user: the list may be loaded again meanwhile. */
type UserDialog =
  | { kind: 'new' }
  | { kind: 'edit' | 'reset' | 'disable' | 'delete'; id: string }
  | { kind: 'password'; name: string; password: string };

interface Confirmation {
  title: string;
  verb: string;
  text: string;
  /** A text that the user has to type first. */
  typed?: string;
  act(): Promise<void>;
}

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
  const closeIf = (kind: UserDialog['kind'] | undefined) =>
    setDialog((open) => (open?.kind === kind ? null : open));
  const enable = async (id: string) => {
    if (await run(() => api.changeUser(id, { enabled: true }))) reload();
  };
  const confirmationOf = ({ id, name, keys }: ManagedUser): Readonly<Record<string, Confirmation>> => ({
    reset: {
      title: `Reset the password of ${name}?`,
      verb: 'Reset password',
      text: `The old password stops working, and all sessions and tokens of ${name} end. Access keys keep working.`,
      async act() {
        const password = newPassword();
        await api.changeUser(id, { password });
        setDialog({ kind: 'password', name, password });
      },
    },
    disable: {
      title: `Disable ${name}?`,
      verb: 'Disable user',
      text: `${name} is signed out, and tokens and access keys stop working within a second. You can enable the user again.`,
      act: () => api.changeUser(id, { enabled: false }).then(reload),
    },
    delete: {
      title: `Delete ${name}?`,
      verb: 'Delete user',
      typed: name,
      text: `${name} is signed out, and ${keysText(keys.length)} Statistics stay. This cannot be undone.`,
      async act() {
        await api.removeUser(id);
        ingestKeys.clear();
        reload();
      },
    },
  });
  const columns: Column<ManagedUser>[] = [
    {
      title: 'User',
      cell: ({ id, name, access, create_time }) => (
        <div class="stacked">
          <span>
            <RowName name={name} />
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
      ...numberColumn('Keys', ({ keys }) => keys.length),
      cell: ({ keys }) => <span class={keys.length === 0 ? 'faint' : ''}>{keys.length}</span>,
    },
    enabledColumn(),
    actionsColumn(({ id, name, enabled }) => (
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
    )),
  ];
  const user =
    dialog !== null && 'id' in dialog ? administration.users.find(({ id }) => id === dialog.id) : undefined;
  const confirmation = user && confirmationOf(user)[dialog?.kind ?? ''];
  return (
    <section>
      <PageHead level={2} title="Users">
        <Button kind="primary" onClick={() => setDialog({ kind: 'new' })} icon="plus">
          New user
        </Button>
      </PageHead>
      {administration.users.length > SEARCH_MIN && (
        <SearchBox name="Find a user" value={search} search={setSearch} />
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
        <Dialog title={`Password of ${dialog.name}`} close={close}>
          <Secret values={{ Password: dialog.password }}>
            Generated password. Copy it now; it won't be shown again.
          </Secret>
          <div class="form-end">
            <Button kind="primary" onClick={close}>
              Done
            </Button>
          </div>
        </Dialog>
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
      {user !== undefined && confirmation !== undefined && (
        <Confirm key={dialog?.kind} {...confirmation} close={() => closeIf(dialog?.kind)}>
          {confirmation.text}
        </Confirm>
      )}
    </section>
  );
}

function keysText(keys: number): string {
  if (keys === 0) return 'loses all roles.';
  return `loses all roles and ${keys === 1 ? 'the access key' : `${keys} access keys`}: programs that use ${keys === 1 ? 'it' : 'them'} get errors.`;
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
      await api.removeUser(user).catch(() => {
        throw new Error(`${sentence(failure)} The user ${name} exists without a role: edit or delete it.`);
      });
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
