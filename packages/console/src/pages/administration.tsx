/** Users, roles, access keys and projects of the domain, for administrators. */
import { useState } from 'preact/hooks';
import type { AccessKey, AccessType, Administration, ManagedProject, ManagedUser, Role } from '../api.ts';
import { useApp } from '../app.ts';
import { day } from '../format.ts';
import { CopyValue } from '../parts/copy.tsx';
import { Confirm, Dialog, FormDialog } from '../parts/dialog.tsx';
import { Choice, Field, type Values } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Icon } from '../parts/icon.tsx';
import { Failure, Message, Problem, Skeleton } from '../parts/states.tsx';
import { byNumber, byText, type Column, RowButton, StateLabel, Table } from '../parts/table.tsx';
import { useAction, useQuery } from '../use-query.ts';
import { SecretValue } from './first-run.tsx';

export function AdministrationPage() {
  const { session } = useApp();
  return session.administers_domain ? (
    <Domain />
  ) : (
    <div class="page">
      <Message title="Not allowed">Only administrators of the domain can manage users and projects.</Message>
    </div>
  );
}

function Domain() {
  const { api, session, project } = useApp();
  const { data, failure, reload } = useQuery('administration', () => api.administration());
  return (
    <div class="page">
      <PageHead level={1} title="Users and projects">
        <p class="hint">Domain {session.user.domain}</p>
      </PageHead>
      {project === null && (
        <p class="notice" role="status">
          There is no enabled project: nobody can read statistics or send logs. Enable a project, or create
          one.
        </p>
      )}
      {failure !== null && <Failure failure={failure} retry={reload} />}
      {data === null && failure === null && <Skeleton />}
      {data !== null && project === null && <Projects administration={data} reload={reload} />}
      {data !== null && <Users administration={data} reload={reload} />}
      {data !== null && project !== null && <Projects administration={data} reload={reload} />}
    </div>
  );
}

/** More users than are seen at a glance. */
const SEARCH_MIN = 10;

interface SectionProps {
  administration: Administration;
  reload(): void;
}

/** A dialog that is open, with the ID of its user: the list may be loaded again meanwhile. */
type UserDialog =
  | { kind: 'new' }
  | { kind: 'edit' | 'reset' | 'disable' | 'delete'; id: string }
  | { kind: 'password'; name: string; password: string };

function Users({ administration, reload }: SectionProps) {
  const { api, session, zone } = useApp();
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
      cell: ({ id, name }) => (
        <span>
          <strong class="cut">{name}</strong>
          {id === session.user.id && <span class="faint"> (you)</span>}
        </span>
      ),
      compare: byText(({ name }) => name),
    },
    { title: 'Access', cell: ({ access }) => ACCESS_NAMES[access], compare: byText(({ access }) => access) },
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
      title: 'Created',
      cell: ({ created }) => day(created, zone),
      compare: byNumber(({ created }) => created),
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
    <section aria-label="Users">
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
      <Table
        name="Users"
        columns={columns}
        rows={found}
        keyOf={({ id }) => id}
        initialSort={{ by: 'User', descending: false }}
      />
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
            const password = await api.resetPassword(user.id);
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
    const roles = { [scope]: [role as Role] };
    const password = await api.addUser({ name, access: access as AccessType, roles });
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

interface EditUserProps {
  user: ManagedUser;
  administration: Administration;
  reload(): void;
  reset(): void;
  close(): void;
}

function EditUser({ user, administration, reload, reset, close }: EditUserProps) {
  const { session } = useApp();
  const isSelf = user.id === session.user.id;
  return (
    <Dialog title={`Edit ${user.name}`} close={close}>
      <div class="edit-user">
        <RolesEditor user={user} administration={administration} reload={reload} />
        {user.access !== 'console' && (
          <UserKeys user={user} administration={administration} reload={reload} />
        )}
        <section aria-label="Password">
          <h3>Password</h3>
          {isSelf ? (
            <p class="hint">Change your own password under My credentials.</p>
          ) : (
            <div class="form-end">
              <button class="button" type="button" onClick={reset}>
                Reset password
              </button>
            </div>
          )}
        </section>
        <div class="form-end">
          <button class="button" type="button" onClick={close}>
            Close
          </button>
        </div>
      </div>
    </Dialog>
  );
}

interface UserSectionProps {
  user: ManagedUser;
  administration: Administration;
  reload(): void;
}

function RolesEditor({ user, administration, reload }: UserSectionProps) {
  const app = useApp();
  const { domain_id, projects, users } = administration;
  const [roles, setRoles] = useState<ManagedUser['roles']>(user.roles);
  const [outcome, setOutcome] = useState('');
  const [isConfirming, setConfirming] = useState(false);
  const { run, problem, isRunning } = useAction();
  const isSelf = user.id === app.session.user.id;
  const administers = (held: ManagedUser['roles']) => held[domain_id]?.includes('admin') ?? false;
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
  const save = async () => {
    const held = Object.fromEntries(Object.entries(roles).filter(([, list]) => list.length > 0));
    await app.api.changeUser(user.id, { roles: held }, isLast ? user.name : undefined);
    if (isSelf) await app.reload();
    setOutcome('Roles saved.');
    reload();
  };
  const scopes = [{ id: domain_id, name: 'All projects' }, ...projects];
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
        <button
          class="button primary"
          type="button"
          disabled={isRunning}
          onClick={() => (losesOwn ? setConfirming(true) : void run(save))}
        >
          Save roles
        </button>
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

function UserKeys({ user, administration, reload }: UserSectionProps) {
  const { api } = useApp();
  const { run, problem, isRunning } = useAction();
  const [secret, setSecret] = useState<{ access: string; secret: string } | null>(null);
  const [deleting, setDeleting] = useState<AccessKey | null>(null);
  const change = async (act: () => Promise<unknown>) => {
    if (await run(act)) reload();
  };
  const create = () =>
    change(async () => {
      setSecret(await api.addUserKey(user.id));
    });
  const toggle = ({ access, status }: AccessKey) =>
    change(() => api.setUserKeyStatus(user.id, access, status === 'active' ? 'inactive' : 'active'));
  return (
    <section aria-label="Access keys">
      <h3>Access keys</h3>
      {user.keys.length === 0 && <p class="hint">No access keys.</p>}
      {user.keys.map((key) => (
        <div class="key-row" key={key.access}>
          <span>
            <code>{key.access}</code> <span class="faint">{key.description}</span>
          </span>
          <div class="buttons">
            <RowButton
              label={key.status === 'active' ? 'Disable' : 'Enable'}
              name={key.access}
              onClick={() => void toggle(key)}
            />
            <RowButton label="Delete" name={key.access} onClick={() => setDeleting(key)} />
          </div>
        </div>
      ))}
      {secret !== null && (
        <div class="secret" role="status">
          <p>Copy the key now; the secret won't be shown again.</p>
          <dl>
            <SecretValue name="Access key ID" value={secret.access} />
            <SecretValue name="Secret access key" value={secret.secret} />
          </dl>
        </div>
      )}
      <Problem text={problem} />
      {user.keys.length < administration.keys_limit && (
        <div class="form-end">
          <button class="button" type="button" disabled={isRunning} onClick={() => void create()}>
            Create access key
          </button>
        </div>
      )}
      {deleting !== null && (
        <Confirm
          title={`Delete ${deleting.access}?`}
          verb="Delete key"
          act={async () => {
            await api.removeUserKey(user.id, deleting.access);
            if (secret?.access === deleting.access) setSecret(null);
            reload();
          }}
          close={() => setDeleting(null)}
        >
          Applications using this key lose access immediately.
        </Confirm>
      )}
    </section>
  );
}

type ProjectDialog = { kind: 'new' } | { kind: 'disable' | 'delete'; project: ManagedProject };

function Projects({ administration, reload }: SectionProps) {
  const app = useApp();
  const { run, problem } = useAction();
  const [dialog, setDialog] = useState<ProjectDialog | null>(null);
  const close = () => setDialog(null);
  /** The session has the enabled projects. */
  const reloadAll = async () => {
    await app.reload();
    reload();
  };
  const enable = async (id: string) => {
    if (await run(() => app.api.setProjectEnabled(id, true))) await reloadAll();
  };
  const columns: Column<ManagedProject>[] = [
    {
      title: 'Project',
      cell: ({ name }) => <strong class="cut">{name}</strong>,
      compare: byText(({ name }) => name),
    },
    {
      title: 'ID',
      cell: ({ id }) => (
        <CopyValue text={id}>
          <code>{id}</code>
        </CopyValue>
      ),
    },
    {
      title: 'Created',
      cell: ({ created }) => day(created, app.zone),
      compare: byNumber(({ created }) => created),
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
      cell: (project) => (
        <div class="buttons">
          <RowButton
            label={project.enabled ? 'Disable' : 'Enable'}
            name={project.name}
            onClick={() =>
              project.enabled ? setDialog({ kind: 'disable', project }) : void enable(project.id)
            }
          />
          <RowButton
            label="Delete"
            name={project.name}
            onClick={() => setDialog({ kind: 'delete', project })}
          />
        </div>
      ),
    },
  ];
  const isLast = (project: ManagedProject) =>
    project.enabled && !administration.projects.some(({ id, enabled }) => enabled && id !== project.id);
  return (
    <section aria-label="Projects">
      <PageHead level={2} title="Projects">
        <button class="button primary" type="button" onClick={() => setDialog({ kind: 'new' })}>
          <Icon name="plus" />
          New project
        </button>
      </PageHead>
      <Problem text={problem} />
      <Table
        name="Projects"
        columns={columns}
        rows={administration.projects}
        keyOf={({ id }) => id}
        initialSort={{ by: 'Project', descending: false }}
      />
      {dialog?.kind === 'new' && (
        <FormDialog
          title="New project"
          verb="Create"
          submit={async ({ name = '' }) => {
            await app.api.addProject(name);
            await reloadAll();
          }}
          close={close}
        >
          <Field label="Name" name="name" required maxLength={64} />
        </FormDialog>
      )}
      {dialog?.kind === 'disable' && (
        <Confirm
          key="disable"
          title={`Disable ${dialog.project.name}?`}
          verb="Disable project"
          {...(isLast(dialog.project) ? { typed: dialog.project.name } : {})}
          act={async () => {
            const { id, name } = dialog.project;
            await app.api.setProjectEnabled(id, false, name);
            await reloadAll();
          }}
          close={close}
        >
          {`Nobody can read the statistics of ${dialog.project.name} or send logs to it, and its tokens stop working. You can enable it again.`}
          {isLast(dialog.project) && LAST_PROJECT}
        </Confirm>
      )}
      {dialog?.kind === 'delete' && (
        <Confirm
          key="delete"
          title={`Delete ${dialog.project.name}?`}
          verb="Delete project"
          typed={dialog.project.name}
          act={async () => {
            const { id, name } = dialog.project;
            await app.api.removeProject(id, name);
            await reloadAll();
          }}
          close={close}
        >
          {`The statistics of ${dialog.project.name} can no longer be read, also not by a new project with this name. All roles in it and its top lists are deleted, and log shippers get errors. This cannot be undone.`}
          {isLast(dialog.project) && LAST_PROJECT}
        </Confirm>
      )}
    </section>
  );
}

const LAST_PROJECT = (
  <strong>
    {' '}
    It is the last enabled project: until you enable or create another one, only this page works.
  </strong>
);

function Enabled({ enabled }: { enabled: boolean }) {
  return <StateLabel kind={enabled ? 'active' : 'off'} text={enabled ? 'Enabled' : 'Disabled'} />;
}

function rolesText(roles: ManagedUser['roles'], { domain_id, projects }: Administration): string {
  const scopeName = (scope: string) =>
    scope === domain_id ? 'all projects' : (projects.find(({ id }) => id === scope)?.name ?? scope);
  const held = Object.entries(roles).filter(([, list]) => list.length > 0);
  return held.map(([scope, list]) => `${list.join(', ')} in ${scopeName(scope)}`).join('; ') || 'no role';
}

const ACCESS_NAMES: Readonly<Record<AccessType, string>> = {
  both: 'Console and API',
  console: 'Console only',
  programmatic: 'API only',
};

const ROLES: readonly Role[] = ['reader', 'ingest', 'admin'];

const ROLE_NAMES: Readonly<Record<Role, string>> = {
  reader: 'reader: view statistics',
  ingest: 'ingest: send log lines',
  admin: 'admin: full access',
};
