/** Users and projects of the domain, for those who administer it. */
import type { ManagedProject, ManagedUser } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h } from '../dom.ts';
import { day } from '../format.ts';
import { icon } from '../icons.ts';
import { dialog } from '../parts/dialog.ts';
import { field, submitForm } from '../parts/form.ts';
import { failureNotice, message, sentence } from '../parts/states.ts';
import { type Cell, table } from '../parts/table.ts';
import { ACCESS_NAMES, newUserForm } from './new-user.ts';

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
        message('For administrators', 'Users and projects are managed by those who administer the domain.'),
      );
      return;
    }
    try {
      known = await app.api.administration();
      addUser.disabled = false;
      fill(users, table('Users', USER_COLUMNS, known.users.map(userRow)));
      fill(projects, table('Projects', PROJECT_COLUMNS, known.projects.map(projectRow)));
    } catch (failure) {
      if (!app.ended(failure))
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
        if (!app.ended(failure)) problem.textContent = sentence(failure);
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
        await app.restart();
        return '';
      },
      app.ended,
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
