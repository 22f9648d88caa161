/** Access keys and password of the user. */
import { useState } from 'preact/hooks';
import type { AccessKey } from '../api.ts';
import { useApp } from '../app.ts';
import { csv, download } from '../export.ts';
import { formatTime } from '../format.ts';
import { Field, Form, type Values } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { useKeyActions } from '../parts/keys.tsx';
import { QueryState } from '../parts/states.tsx';
import { actionsColumn, byText, type Column, StateLabel, Table } from '../parts/table.tsx';
import { useQuery } from '../use-query.ts';

export function CredentialsPage() {
  const { access, name, domain } = useApp().session.user;
  return (
    <div class="page narrow">
      <PageHead level={1} title="My credentials">
        <p class="hint">
          User {name}, domain {domain}
        </p>
      </PageHead>
      <section class="card" aria-labelledby="keys">
        <h2 id="keys">Access keys</h2>
        <p class="hint">Applications sign API requests with an access key.</p>
        {access === 'console' ? (
          <p>This user only supports console access and cannot have access keys.</p>
        ) : (
          <AccessKeys />
        )}
      </section>
      <PasswordForm />
    </div>
  );
}

function AccessKeys() {
  const { api, session } = useApp();
  const { user, keys_limit } = session;
  const query = useQuery('keys', () => api.keys(user.id));
  const { data, failure, reload } = query;
  const [outcome, setOutcome] = useState('');
  const create = async ({ description = '' }: Values) => {
    const { access, secret } = await api.addKey(user.id, description);
    const rows = [
      ['User Name', 'Access Key Id', 'Secret Access Key'],
      [user.name, access, secret],
    ];
    // Plain newlines, so that `cut -d, -f3` returns the secret without a carriage return.
    download('credentials.csv', csv(rows).replaceAll('\r\n', '\n'));
    setOutcome("Key file downloaded. It contains the secret access key, which won't be shown again.");
    reload();
  };
  if (data === null || failure !== null) return <QueryState query={query} />;
  return (
    <>
      {data.length === 0 ? (
        <p class="empty">No access keys yet.</p>
      ) : (
        <KeyTable keys={data} reload={reload} />
      )}
      <p class="outcome" role="status">
        {outcome}
      </p>
      {data.length >= keys_limit ? (
        <p class="hint">{`A user can have at most ${keys_limit} access keys. Delete one to create another.`}</p>
      ) : (
        <Form name="Create access key" verb="Create access key" submit={create}>
          <Field
            label="Description of a new key"
            name="description"
            maxLength={255}
            placeholder="Nightly report"
          />
        </Form>
      )}
    </>
  );
}

function KeyTable({ keys, reload }: { keys: readonly AccessKey[]; reload(): void }) {
  const { zone } = useApp();
  const { buttons, messages } = useKeyActions(reload);
  const columns: Column<AccessKey>[] = [
    { title: 'Access key ID', cell: ({ access }) => <code>{access}</code> },
    { title: 'Description', cell: ({ description }) => description || <span class="faint">–</span> },
    {
      title: 'State',
      cell: ({ status }) => (
        <StateLabel
          kind={status === 'active' ? 'active' : 'off'}
          text={status === 'active' ? 'Active' : 'Disabled'}
        />
      ),
    },
    {
      title: 'Created',
      cell: ({ create_time }) => formatTime(Math.floor(Date.parse(create_time) / 60_000) * 60_000, zone),
      compare: byText(({ create_time }) => create_time),
    },
    actionsColumn(buttons),
  ];
  return (
    <>
      <Table name="Access keys" columns={columns} rows={keys} keyOf={({ access }) => access} />
      {messages}
    </>
  );
}

function PasswordForm() {
  const { api, session } = useApp();
  const change = async ({ old = '', fresh = '', again = '' }: Values) => {
    if (fresh !== again) throw new Error('The new passwords do not match.');
    await api.changePassword(session.user.id, old, fresh);
    return 'Password changed. Your other sessions and tokens were revoked.';
  };
  const common = { type: 'password', autocomplete: 'new-password', required: true } as const;
  return (
    <section class="card" aria-labelledby="password">
      <h2 id="password">Password</h2>
      <Form name="Change password" verb="Change password" submit={change}>
        <input
          class="offscreen"
          autocomplete="username"
          value={session.user.name}
          readOnly
          tabIndex={-1}
          aria-hidden="true"
        />
        <Field {...common} label="Current password" name="old" autocomplete="current-password" />
        <Field {...common} label="New password" name="fresh" minLength={8} hint="At least 8 characters." />
        <Field {...common} label="Repeat new password" name="again" />
      </Form>
    </section>
  );
}
