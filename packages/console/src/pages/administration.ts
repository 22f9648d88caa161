/** Users and projects of the domain, for administrators. */
import type { AccessType, Administration, ManagedProject, ManagedUser, Role } from '../api.ts';
import type { App, Page } from '../app.ts';
import { button, fill, h, icon } from '../dom.ts';
import { day } from '../format.ts';
import { choice, field, formDialog } from '../parts/form.ts';
import { pageHead } from '../parts/shell.ts';
import { attempt, loader, message } from '../parts/states.ts';
import { actions, type Cell, rowButton, stateLabel, table } from '../parts/table.ts';

export function administrationPage(app: App): Page {
  const problem = h('p', { class: 'problem', role: 'alert' });
  const users = h('div', {}, h('div', { class: 'skeleton block' }));
  const projects = h('div', {}, h('div', { class: 'skeleton block' }));
  const primary = { class: 'button primary' };
  const addUser = button(
    { ...primary, disabled: true },
    () => known && newUser(app, known, load),
    icon('plus'),
    'New user',
  );
  const addProject = button(primary, () => newProject(app), icon('plus'), 'New project');
  const element = h(
    'div',
    { class: 'page' },
    pageHead('h1', 'Users and projects', h('p', { class: 'hint' }, `Domain ${app.session.user.domain}`)),
    problem,
    h('section', { 'aria-label': 'Users' }, pageHead('h2', 'Users', addUser), users),
    h('section', { 'aria-label': 'Projects' }, pageHead('h2', 'Projects', addProject), projects),
  );
  let known: Administration | null = null;

  const { load } = loader(
    app,
    async () => {
      known = await app.api.administration();
      addUser.disabled = false;
      const userColumns = ['User', 'Access', 'Roles', 'Created', 'State', actions()];
      fill(users, table('Users', userColumns, known.users.map(userRow)));
      const projectColumns = ['Project', 'ID', 'Created', 'State', actions()];
      fill(projects, table('Projects', projectColumns, known.projects.map(projectRow)));
    },
    users,
  );

  function userRow({ id, name, access, enabled, created, roles }: ManagedUser): Cell[] {
    const held = Object.entries(roles).filter(([, list]) => list.length > 0);
    return [
      h('strong', { class: 'cut' }, name),
      ACCESS_NAMES[access],
      held.map(([scope, list]) => `${list.join(', ')} in ${scopeName(scope)}`).join('; ') || 'no role',
      day(created, app.offsetMs()),
      stateLabel(enabled ? 'active' : 'off', enabled ? 'Enabled' : 'Disabled'),
      id === app.session.user.id
        ? h('span', { class: 'faint' }, 'you')
        : switchButton(name, enabled, () => app.api.setUserEnabled(id, !enabled)),
    ];
  }

  function projectRow({ id, name, enabled, created }: ManagedProject): Cell[] {
    return [
      h('strong', { class: 'cut' }, name),
      h('code', {}, id),
      day(created, app.offsetMs()),
      stateLabel(enabled ? 'active' : 'off', enabled ? 'Enabled' : 'Disabled'),
      switchButton(name, enabled, () => app.api.setProjectEnabled(id, !enabled)),
    ];
  }

  function scopeName(scope: string): string {
    if (scope === known?.domain_id) return 'all projects';
    return known?.projects.find(({ id }) => id === scope)?.name ?? scope;
  }

  function switchButton(name: string, enabled: boolean, change: () => Promise<void>): HTMLElement {
    return rowButton(enabled ? 'Disable' : 'Enable', name, () => void attempt(app, problem, change, load));
  }

  if (!app.session.administers_domain)
    fill(element, message('Not allowed', 'Only administrators of the domain can manage users and projects.'));
  return {
    element,
    title: 'Users and projects',
    show: () => app.session.administers_domain && load(),
  };
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

function newProject(app: App): void {
  const name = field('Name', { required: true, maxlength: 64 });
  const add = () => app.api.addProject(name.input.value);
  formDialog(app, 'New project', 'Create', [name.element], add, () => void app.reload());
}

function newUser(app: App, { domain_id, projects }: Administration, created: () => void): void {
  const name = field('Name', { required: true, maxlength: 64, autocomplete: 'off', autocapitalize: 'none' });
  const password = field(
    'Password',
    { required: true, minlength: 8, value: randomPassword(), autocomplete: 'off', spellcheck: 'false' },
    "Generated password. Copy it now; it won't be shown again.",
  );
  const access = choice('Access (cannot be changed later)', Object.entries(ACCESS_NAMES));
  const role = choice('Role', Object.entries(ROLE_NAMES));
  const scope = choice('Project', [
    ...projects.map(({ id, name: project }) => [id, project] as const),
    [domain_id, 'All projects of the domain'],
  ]);
  scope.input.value = app.project.id;
  const fields = [name, password, access, role, scope].map(({ element }) => element);
  const add = () =>
    app.api.addUser({
      name: name.input.value,
      password: password.input.value,
      access: access.input.value as AccessType,
      roles: { [scope.input.value]: [role.input.value as Role] },
    });
  formDialog(app, 'New user', 'Create', fields, add, created);
}

/** 120 bits, without letters that look alike. */
function randomPassword(): string {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789';
  return [...crypto.getRandomValues(new Uint8Array(24))].map((byte) => letters[byte % 32]).join('');
}
