/** Access keys and password of the user. */
import type { AccessKey } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h } from '../dom.ts';
import { download } from '../export.ts';
import { formatTime } from '../format.ts';
import { confirm, field, submitForm } from '../parts/form.ts';
import { pageHead } from '../parts/shell.ts';
import { attempt, loader } from '../parts/states.ts';
import { actions, type Cell, rowButton, stateLabel, table } from '../parts/table.ts';

export function credentialsPage(app: App): Page {
  const { access, name, domain } = app.session.user;
  const list = h('div', {}, h('div', { class: 'skeleton block' }));
  const problem = h('p', { class: 'problem', role: 'alert' });
  const limit = h('p', { class: 'hint' });
  const outcome = h('p', { class: 'outcome', role: 'status' });
  const description = field('Description', { maxlength: 255, placeholder: 'Nightly report' });
  const verb = 'Create access key';
  const create = submitForm(app, verb, verb, [description.element], async () => {
    download('credentials.csv', await app.api.addKey(description.input.value));
    outcome.textContent =
      "Key file downloaded. It contains the secret access key, which won't be shown again.";
    load();
    return '';
  });
  const keys = h(
    'section',
    { class: 'card', 'aria-labelledby': 'keys' },
    h('h2', { id: 'keys' }, 'Access keys'),
    h('p', { class: 'hint' }, 'Applications sign API requests with an access key.'),
    ...(access === 'console'
      ? [h('p', {}, 'This user only supports console access and cannot have access keys.')]
      : [list, outcome, problem, limit, create]),
  );
  const element = h(
    'div',
    { class: 'page narrow' },
    pageHead('h1', 'My credentials', h('p', { class: 'hint' }, `User ${name}, domain ${domain}`)),
    keys,
    passwordForm(app),
  );

  const { load } = loader(
    app,
    async () => {
      const { items, limit: most } = await app.api.keys();
      create.hidden = items.length >= most;
      limit.textContent = create.hidden
        ? `A user can have at most ${most} access keys. Delete one to create another.`
        : '';
      const columns = ['Access key ID', 'Description', 'State', 'Created', actions()];
      fill(
        list,
        items.length === 0
          ? h('p', { class: 'empty' }, 'No access keys yet.')
          : table('Access keys', columns, items.map(row)),
      );
    },
    list,
  );

  function row(key: AccessKey): Cell[] {
    const active = key.status === 'active';
    const change = (act: () => Promise<void>) => () => void attempt(app, problem, act, load);
    const toggle = change(() => app.api.setKeyStatus(key.access, active ? 'inactive' : 'active'));
    const remove = change(() => app.api.removeKey(key.access));
    const warning = 'Applications using this key lose access immediately.';
    const confirmRemoval = () => confirm(`Delete ${key.access}?`, warning, 'Delete key', remove);
    return [
      h('code', {}, key.access),
      key.description || h('span', { class: 'faint' }, '–'),
      stateLabel(active ? 'active' : 'off', active ? 'Active' : 'Disabled'),
      formatTime(Math.floor(key.created / 60_000) * 60_000, app.offsetMs()),
      h(
        'div',
        { class: 'buttons' },
        rowButton(active ? 'Disable' : 'Enable', key.access, toggle),
        rowButton('Delete', key.access, confirmRemoval),
      ),
    ];
  }

  return { element, title: 'My credentials', show: () => access !== 'console' && load() };
}

function passwordForm(app: App): HTMLElement {
  const user = h('input', {
    class: 'offscreen',
    autocomplete: 'username',
    value: app.session.user.name,
    readonly: true,
    tabindex: -1,
    'aria-hidden': 'true',
  });
  const props = { type: 'password', autocomplete: 'new-password', required: true };
  const old = field('Current password', { ...props, autocomplete: 'current-password' });
  const fresh = field('New password', { ...props, minlength: 8 }, 'At least 8 characters.');
  const again = field('Repeat new password', props);
  const verb = 'Change password';
  const fields = [user, old.element, fresh.element, again.element];
  const form = submitForm(app, verb, verb, fields, async () => {
    if (fresh.input.value !== again.input.value) throw new Error('The new passwords do not match.');
    await app.api.changePassword(old.input.value, fresh.input.value);
    return 'Password changed. Your other sessions and tokens were revoked.';
  });
  return h(
    'section',
    { class: 'card', 'aria-labelledby': 'password' },
    h('h2', { id: 'password' }, 'Password'),
    form,
  );
}
