/** Users and projects of the domain, for administrators. */
import type { AccessType, ManagedProject, ManagedUser, Role } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h, icon } from '../dom.ts';
import { day } from '../format.ts';
import { choice, dialog, field, submitForm } from '../parts/form.ts';
import { failureNotice, message, sentence } from '../parts/states.ts';
import { type Cell, table } from '../parts/table.ts';

export function administrationPage(app: App): Page {
  const problem = h('p', { class: 'problem', role: 'alert' });
  const users = h('div', {}, h('div', { class: 'skeleton block' }));
  const projects = h('div', {}, h('div', { class: 'skeleton block' }));
  const addUser = h(
    'button',
    { class: 'button primary', type: 'button', disabled: true },
    icon('plus'),
    'New user',
  );
  const addProject = h('button', { class: 'button primary', type: 'button' }, icon('plus'), 'New project');
  const element = h(
    'div',
    { class: 'page' },
    h(
      'div',
      { class: 'page-head' },
      h('h1', {}, 'Users and projects'),
      h('p', { class: 'hint' }, `Domain ${app.session.user.domain}`),
    ),
    problem,
    h(
      'section',
      { 'aria-label': 'Users' },
      h('div', { class: 'page-head' }, h('h2', {}, 'Users'), addUser),
      users,
    ),
    h(
      'section',
      { 'aria-label': 'Projects' },
      h('div', { class: 'page-head' }, h('h2', {}, 'Projects'), addProject),
      projects,
    ),
  );
  let known: Awaited<ReturnType<typeof app.api.administration>> | null = null;

  async function load(): Promise<void> {
    if (!app.session.administers_domain) {
      fill(
        element,
        message('Not allowed', 'Only administrators of the domain can manage users and projects.'),
      );
      return;
    }
    try {
      known = await app.api.administration();
      addUser.disabled = false;
      fill(users, table('Users', USER_COLUMNS, known.users.map(userRow)));
      fill(projects, table('Projects', PROJECT_COLUMNS, known.projects.map(projectRow)));
    } catch (failure) {
      if (!app.handleSignedOut(failure))
        fill(
          users,
          failureNotice(failure, () => void load()),
        );
    }
  }

  function userRow({ id, name, access, enabled, created, roles }: ManagedUser): Cell[] {
    const held = Object.entries(roles).filter(([, list]) => list.length > 0);
    const self = id === app.session.user.id;
    return [
      h('strong', { class: 'cut' }, name),
      ACCESS_NAMES[access],
      h(
        'span',
        {},
        held.map(([scope, list]) => `${list.join(', ')} in ${scopeName(scope)}`).join('; ') || 'no role',
      ),
      day(created, app.offsetMs()),
      state(enabled),
      self
        ? h('span', { class: 'faint' }, 'you')
        : switchButton(name, enabled, () => app.api.setUserEnabled(id, !enabled)),
    ];
  }

  function projectRow({ id, name, enabled, created }: ManagedProject): Cell[] {
    return [
      h('strong', { class: 'cut' }, name),
      h('code', {}, id),
      day(created, app.offsetMs()),
      state(enabled),
      switchButton(name, enabled, () => app.api.setProjectEnabled(id, !enabled)),
    ];
  }

  function scopeName(scope: string): string {
    if (scope === known?.domain_id) return 'all projects';
    return known?.projects.find(({ id }) => id === scope)?.name ?? scope;
  }

  function switchButton(name: string, enabled: boolean, change: () => Promise<void>): HTMLElement {
    const verb = enabled ? 'Disable' : 'Enable';
    const button = h(
      'button',
      { class: 'button small', type: 'button', 'aria-label': `${verb} ${name}` },
      verb,
    );
    button.addEventListener('click', async () => {
      button.disabled = true;
      problem.textContent = '';
      try {
        await change();
        await load();
      } catch (failure) {
        if (!app.handleSignedOut(failure)) problem.textContent = sentence(failure);
      }
    });
    return button;
  }

  addUser.addEventListener('click', () => {
    if (known) newUserForm(app, known, () => void load());
  });
  addProject.addEventListener('click', () => {
    const name = field('Name', { required: true, maxlength: 64 });
    const form = submitForm(
      'New project',
      'Create',
      [name.element],
      async () => {
        await app.api.addProject(name.input.value);
        close();
        await app.reload();
        return '';
      },
      app.handleSignedOut,
    );
    const close = dialog('New project', form);
  });

  return { element, title: 'Users and projects', show: () => void load() };
}

const ACTIONS = { title: 'Actions', actions: true };
const USER_COLUMNS = [
  ...['User', 'Access', 'Roles', 'Created', 'State'].map((title) => ({ title })),
  ACTIONS,
];
const PROJECT_COLUMNS = [...['Project', 'ID', 'Created', 'State'].map((title) => ({ title })), ACTIONS];

function state(enabled: boolean): HTMLElement {
  return h('span', { class: `state ${enabled ? 'active' : 'off'}` }, enabled ? 'Enabled' : 'Disabled');
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

function newUserForm(
  app: App,
  { domain_id, projects }: { domain_id: string; projects: ManagedProject[] },
  onCreated: () => void,
): void {
  const name = field('Name', { required: true, maxlength: 64, autocomplete: 'off', autocapitalize: 'none' });
  const password = field(
    'Password',
    { required: true, value: randomPassword(), autocomplete: 'off', spellcheck: 'false' },
    "Generated password. Copy it now; it won't be shown again.",
  );
  const access = choice('Access (cannot be changed later)', entries(ACCESS_NAMES));
  const role = choice('Role', entries(ROLE_NAMES));
  const scope = choice('Project', [
    ...projects.map(({ id, name: project }) => [id, project] as const),
    [domain_id, 'All projects of the domain'],
  ]);
  scope.select.value = app.project.id;
  const form = submitForm(
    'New user',
    'Create',
    [name.element, password.element, access.element, role.element, scope.element],
    async () => {
      await app.api.addUser({
        name: name.input.value,
        password: password.input.value,
        access: access.select.value as AccessType,
        roles: { [scope.select.value]: [role.select.value as Role] },
      });
      close();
      onCreated();
      return '';
    },
    app.handleSignedOut,
  );
  const close = dialog('New user', form);
  name.input.focus();
}

/** 120 bits, without letters that look alike. */
function randomPassword(): string {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789';
  return [...crypto.getRandomValues(new Uint8Array(24))].map((byte) => letters[byte % 32]).join('');
}

function entries<K extends string>(names: Readonly<Record<K, string>>): [K, string][] {
  return Object.entries(names) as [K, string][];
}
