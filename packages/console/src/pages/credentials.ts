/** Access keys and password of the user. */
import type { AccessKey } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h } from '../dom.ts';
import { download } from '../export.ts';
import { formatTime } from '../format.ts';
import { confirm, field, submitForm } from '../parts/form.ts';
import { failureNotice, sentence } from '../parts/states.ts';
import { type Cell, table } from '../parts/table.ts';

export function credentialsPage(app: App): Page {
  const { access, name, domain } = app.session.user;
  const list = h('div', {}, h('div', { class: 'skeleton block' }));
  const problem = h('p', { class: 'problem', role: 'alert' });
  const limit = h('p', { class: 'hint' });
  const made = h('p', { class: 'outcome', role: 'status' });
  const description = field('Description', { maxlength: 255, placeholder: 'Nightly report' });
  const create = submitForm(
    'Create access key',
    'Create access key',
    [description.element],
    async () => {
      download('credentials.csv', await app.api.addKey(description.input.value));
      made.textContent =
        "Key file downloaded. It contains the secret access key, which won't be shown again.";
      await load();
      return '';
    },
    app.handleSignedOut,
  );
  const keys = h(
    'section',
    { class: 'card', 'aria-labelledby': 'keys' },
    h('h2', { id: 'keys' }, 'Access keys'),
    h('p', { class: 'hint' }, 'Applications sign API requests with an access key.'),
    ...(access === 'console'
      ? [h('p', {}, 'This user only supports console access and cannot have access keys.')]
      : [list, made, problem, limit, create]),
  );
  const element = h(
    'div',
    { class: 'page narrow' },
    h(
      'div',
      { class: 'page-head' },
      h('h1', {}, 'My credentials'),
      h('p', { class: 'hint' }, `User ${name}, domain ${domain}`),
    ),
    keys,
    passwordForm(app),
  );

  async function load(): Promise<void> {
    if (access === 'console') return;
    try {
      const { items, limit: most } = await app.api.keys();
      create.hidden = items.length >= most;
      limit.textContent =
        items.length >= most
          ? `A user can have at most ${most} access keys. Delete one to create another.`
          : '';
      fill(
        list,
        items.length === 0
          ? h('p', { class: 'empty' }, 'No access keys yet.')
          : table('Access keys', COLUMNS, items.map(row)),
      );
    } catch (failure) {
      if (!app.handleSignedOut(failure))
        fill(
          list,
          failureNotice(failure, () => void load()),
        );
    }
  }

  function row(key: AccessKey): Cell[] {
    const active = key.status === 'active';
    const act = (change: () => Promise<void>) => async () => {
      problem.textContent = '';
      try {
        await change();
        await load();
      } catch (failure) {
        if (!app.handleSignedOut(failure)) problem.textContent = sentence(failure);
      }
    };
    const toggle = act(() => app.api.setKeyStatus(key.access, active ? 'inactive' : 'active'));
    const remove = act(() => app.api.removeKey(key.access));
    const ask = () =>
      confirm(
        `Delete ${key.access}?`,
        'Applications using this key lose access immediately.',
        'Delete key',
        () => void remove(),
      );
    const button = (label: string, click: () => void) =>
      h(
        'button',
        { class: 'button small', type: 'button', 'aria-label': `${label} ${key.access}`, on: { click } },
        label,
      );
    return [
      h('code', {}, key.access),
      key.description || h('span', { class: 'faint' }, '–'),
      h('span', { class: `state ${active ? 'active' : 'off'}` }, active ? 'Active' : 'Disabled'),
      formatTime(Math.floor(key.created / 60_000) * 60_000, app.offsetMs()),
      h(
        'div',
        { class: 'buttons' },
        button(active ? 'Disable' : 'Enable', () => void toggle()),
        button('Delete', ask),
      ),
    ];
  }

  return { element, title: 'My credentials', show: () => void load() };
}

const COLUMNS = [
  { title: 'Access key ID' },
  { title: 'Description' },
  { title: 'State' },
  { title: 'Created' },
  { title: 'Actions', actions: true },
];

function passwordForm(app: App): HTMLElement {
  const user = h('input', {
    class: 'offscreen',
    autocomplete: 'username',
    value: app.session.user.name,
    readonly: true,
    tabindex: -1,
    'aria-hidden': 'true',
  });
  const old = field('Current password', {
    type: 'password',
    autocomplete: 'current-password',
    required: true,
  });
  const fresh = field(
    'New password',
    { type: 'password', autocomplete: 'new-password', required: true, minlength: 8 },
    'At least 8 characters.',
  );
  const again = field('Repeat new password', {
    type: 'password',
    autocomplete: 'new-password',
    required: true,
  });
  const form = submitForm(
    'Change password',
    'Change password',
    [user, old.element, fresh.element, again.element],
    async () => {
      if (fresh.input.value !== again.input.value) throw new Error('The new passwords do not match.');
      await app.api.changePassword(old.input.value, fresh.input.value);
      return 'Password changed. Your other sessions and tokens were revoked.';
    },
    app.handleSignedOut,
  );
  return h(
    'section',
    { class: 'card', 'aria-labelledby': 'password' },
    h('h2', { id: 'password' }, 'Password'),
    form,
  );
}
