/** Users and projects of the domain, for administrators. */
import { useState } from 'preact/hooks';
import type { AccessType, Administration, ManagedProject, ManagedUser, Role } from '../api.ts';
import { useApp } from '../app.ts';
import { day } from '../format.ts';
import { FormDialog } from '../parts/dialog.tsx';
import { Choice, Field, type Values } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Icon } from '../parts/icon.tsx';
import { Failure, Message, Problem, Skeleton } from '../parts/states.tsx';
import { byNumber, byText, type Column, RowButton, StateLabel, Table } from '../parts/table.tsx';
import { useAction, useQuery } from '../use-query.ts';

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
  const { api, session } = useApp();
  const { data, failure, reload } = useQuery('administration', () => api.administration());
  return (
    <div class="page">
      <PageHead level={1} title="Users and projects">
        <p class="hint">Domain {session.user.domain}</p>
      </PageHead>
      {failure !== null && <Failure failure={failure} retry={reload} />}
      {data === null && failure === null && <Skeleton />}
      {data !== null && <Users administration={data} reload={reload} />}
      {data !== null && <Projects administration={data} reload={reload} />}
    </div>
  );
}

interface SectionProps {
  administration: Administration;
  reload(): void;
}

function Users({ administration, reload }: SectionProps) {
  const { api, session, zone } = useApp();
  const { run, problem } = useAction();
  const [isAdding, setAdding] = useState(false);
  const toggle = async ({ id, enabled }: ManagedUser) => {
    if (await run(() => api.setUserEnabled(id, !enabled))) reload();
  };
  const columns: Column<ManagedUser>[] = [
    {
      title: 'User',
      cell: ({ name }) => <strong class="cut">{name}</strong>,
      compare: byText(({ name }) => name),
    },
    { title: 'Access', cell: ({ access }) => ACCESS_NAMES[access], compare: byText(({ access }) => access) },
    { title: 'Roles', cell: ({ roles }) => rolesText(roles, administration) },
    {
      title: 'Created',
      cell: ({ created }) => day(created, zone),
      compare: byNumber(({ created }) => created),
    },
    { title: 'State', cell: ({ enabled }) => <Enabled enabled={enabled} /> },
    {
      title: 'Actions',
      hideTitle: true,
      isNumber: true,
      cell: (user) =>
        user.id === session.user.id ? (
          <span class="faint">you</span>
        ) : (
          <RowButton
            label={user.enabled ? 'Disable' : 'Enable'}
            name={user.name}
            onClick={() => void toggle(user)}
          />
        ),
    },
  ];
  return (
    <section aria-label="Users">
      <PageHead level={2} title="Users">
        <button class="button primary" type="button" onClick={() => setAdding(true)}>
          <Icon name="plus" />
          New user
        </button>
      </PageHead>
      <Problem text={problem} />
      <Table name="Users" columns={columns} rows={administration.users} keyOf={({ id }) => id} />
      {isAdding && (
        <NewUser administration={administration} created={reload} close={() => setAdding(false)} />
      )}
    </section>
  );
}

function Projects({ administration, reload }: SectionProps) {
  const app = useApp();
  const { run, problem } = useAction();
  const [isAdding, setAdding] = useState(false);
  const toggle = async ({ id, enabled }: ManagedProject) => {
    if (await run(() => app.api.setProjectEnabled(id, !enabled))) reload();
  };
  const columns: Column<ManagedProject>[] = [
    {
      title: 'Project',
      cell: ({ name }) => <strong class="cut">{name}</strong>,
      compare: byText(({ name }) => name),
    },
    { title: 'ID', cell: ({ id }) => <code>{id}</code> },
    {
      title: 'Created',
      cell: ({ created }) => day(created, app.zone),
      compare: byNumber(({ created }) => created),
    },
    { title: 'State', cell: ({ enabled }) => <Enabled enabled={enabled} /> },
    {
      title: 'Actions',
      hideTitle: true,
      isNumber: true,
      cell: (project) => (
        <RowButton
          label={project.enabled ? 'Disable' : 'Enable'}
          name={project.name}
          onClick={() => void toggle(project)}
        />
      ),
    },
  ];
  return (
    <section aria-label="Projects">
      <PageHead level={2} title="Projects">
        <button class="button primary" type="button" onClick={() => setAdding(true)}>
          <Icon name="plus" />
          New project
        </button>
      </PageHead>
      <Problem text={problem} />
      <Table name="Projects" columns={columns} rows={administration.projects} keyOf={({ id }) => id} />
      {isAdding && (
        <FormDialog
          title="New project"
          verb="Create"
          submit={async ({ name = '' }) => {
            await app.api.addProject(name);
            await app.reload();
            reload();
          }}
          close={() => setAdding(false)}
        >
          <Field label="Name" name="name" required maxLength={64} />
        </FormDialog>
      )}
    </section>
  );
}

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

const ROLE_NAMES: Readonly<Record<Role, string>> = {
  reader: 'reader: view statistics',
  ingest: 'ingest: send log lines',
  admin: 'admin: full access',
};

interface NewUserProps {
  administration: Administration;
  created(): void;
  close(): void;
}

function NewUser({ administration: { domain_id, projects }, created, close }: NewUserProps) {
  const { api, project } = useApp();
  const [generated] = useState(randomPassword);
  const submit = async ({ name = '', password = '', access, role, scope = '' }: Values) => {
    await api.addUser({ name, password, access: access as AccessType, roles: { [scope]: [role as Role] } });
    created();
  };
  const scopes = [
    ...projects.map(({ id, name }) => [id, name] as const),
    [domain_id, 'All projects of the domain'] as const,
  ];
  return (
    <FormDialog title="New user" verb="Create" submit={submit} close={close}>
      <Field label="Name" name="name" required maxLength={64} autocomplete="off" autocapitalize="none" />
      <Field
        label="Password"
        name="password"
        required
        minLength={8}
        defaultValue={generated}
        autocomplete="off"
        spellcheck={false}
        hint="Generated password. Copy it now; it won't be shown again."
      />
      <Choice label="Access (cannot be changed later)" name="access" options={Object.entries(ACCESS_NAMES)} />
      <Choice label="Role" name="role" options={Object.entries(ROLE_NAMES)} />
      <Choice label="Project" name="scope" options={scopes} initial={project?.id} />
    </FormDialog>
  );
}

/** 120 bits, without letters that look alike. */
function randomPassword(): string {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789';
  return [...crypto.getRandomValues(new Uint8Array(24))].map((byte) => letters[byte % 32]).join('');
}
