/** A new user: what they sign in to is set here, once. */
import type { AccessType, ManagedProject, Role } from '../api.ts';
import type { App } from '../app.ts';
import { dialog } from '../parts/dialog.ts';
import { choice, field, submitForm } from '../parts/form.ts';

export const ACCESS_NAMES: Readonly<Record<AccessType, string>> = {
  both: 'Console and API',
  console: 'Console only',
  programmatic: 'API only',
};

const ROLE_NAMES: Readonly<Record<Role, string>> = {
  reader: 'reader: sees the numbers',
  ingest: 'ingest: sends log lines',
  admin: 'admin: everything',
};

export function newUserForm(
  app: App,
  { domain_id, projects }: { domain_id: string; projects: ManagedProject[] },
  made: () => void,
): void {
  const name = field('Name', { required: true, maxlength: 64, autocomplete: 'off', autocapitalize: 'none' });
  const password = field(
    'Password',
    { required: true, value: randomPassword(), autocomplete: 'off', spellcheck: 'false' },
    'A made-up one: pass it on, it is not shown again.',
  );
  const access = choice('May sign in to (cannot be changed later)', entries(ACCESS_NAMES));
  const role = choice('Role', entries(ROLE_NAMES));
  const scope = choice('In', [
    ...projects.map(({ id, name: project }) => [id, project] as const),
    [domain_id, 'all projects of the domain'],
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
      made();
      return '';
    },
    app.ended,
  );
  const close = dialog('New user', form);
  name.input.focus();
}

/** 120 bits, in letters that can be read out. */
function randomPassword(): string {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789';
  return [...crypto.getRandomValues(new Uint8Array(24))].map((byte) => letters[byte % 32]).join('');
}

function entries<K extends string>(names: Readonly<Record<K, string>>): [K, string][] {
  return Object.entries(names) as [K, string][];
}
