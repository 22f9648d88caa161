/** Management of access keys, the password, hosts, users and projects. */
import { execFileSync, type StdioOptions } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { sign } from '@wafstat/signer';
import { expect, test } from 'vitest';
import { call, login } from './api.ts';
import { describeService } from './console-fixtures.ts';
import { ndjson } from './sandbox.ts';

describeService('management', (service) => {
  test('a new access key is downloaded and signs a query; a user can have two', async () => {
    const { installation, server, page } = service;
    await service.enter('/console/credentials');
    await page.getByLabel('Description').fill('Nightly report');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Create access key' }).click(),
    ]);
    expect(download.suggestedFilename()).toBe('credentials.csv');
    const csv = await text(await download.createReadStream());
    const [head, line = ''] = csv.split('\n');
    expect(head).toBe('User Name,Access Key Id,Secret Access Key');
    const [, access = '', secret = ''] = line.split(',');
    await page.getByText('Nightly report').waitFor();
    expect(await page.content()).not.toContain(secret);

    const signed = async () => {
      const url = `${server.address}/v1/${installation.project_id}/waf/event/timeline?from=0&to=60000`;
      const headers = await sign({ method: 'GET', url }, { access, secret });
      return (await fetch(url, { headers })).status;
    };
    expect(await signed()).toBe(200);
    await page.getByRole('button', { name: `Disable ${access}` }).click();
    await page.getByRole('button', { name: `Enable ${access}` }).waitFor();
    expect(await signed()).toBe(401);
    await page.getByRole('button', { name: `Enable ${access}` }).click();
    await page.getByRole('button', { name: `Disable ${access}` }).waitFor();
    expect(await signed()).toBe(200);

    await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Create access key' }).click(),
    ]);
    await page.getByText('at most 2 access keys').waitFor();
    await page.getByText('Key file downloaded.').waitFor();
    expect(await page.getByRole('button', { name: 'Create access key' }).isVisible()).toBe(false);
    await page.getByRole('button', { name: `Delete ${access}` }).click();
    await page.getByRole('button', { name: 'Delete key', exact: true }).click();
    await expect.poll(() => page.getByRole('row').count()).toBe(2);
    expect(await signed()).toBe(401);
  });

  test('a password change revokes all other sessions and tokens', async () => {
    const { installation, server, api, page } = service;
    const elsewhere = await service.session(installation);
    await service.enter('/console/credentials');
    const change = async (old: string, fresh: string, again: string) => {
      await page.getByLabel('Current password').fill(old);
      await page.getByLabel('New password', { exact: true }).fill(fresh);
      await page.getByLabel('Repeat new password').fill(again);
      await page.getByRole('button', { name: 'Change password' }).click();
    };
    await change('wrong', 'new password', 'new password');
    await page.getByText('The old password is wrong.').waitFor();
    await change(installation.password, 'new password', 'other password');
    await page.getByText('The new passwords do not match.', { exact: true }).waitFor();
    await change(installation.password, 'new password', 'new password');
    await page.getByText('Password changed.').waitFor();
    await page.getByRole('link', { name: 'Sources' }).click();
    await page.getByText('has no data yet').waitFor();
    const path = `/v1/${installation.project_id}/connections`;
    expect((await call(server.address, path, { headers: { Cookie: elsewhere } })).status).toBe(401);
    expect((await api.get('connections')).status).toBe(401);
    await login(server.address, { ...installation, password: 'new password' });
  });

  test('the first-run page has the commands with a new key, and shows what became of the first lines', async () => {
    const { installation, page, sandbox } = service;
    await page.clock.install();
    await service.enter('/console/sources');
    await page.getByText('default has no data yet').waitFor();
    await page.getByText('Waiting for the first event').waitFor();
    await page.getByText('Apache', { exact: true }).click();
    const follow = page.locator('.command code', { hasText: ' follow ' });
    const { project_id } = installation;
    await expect
      .poll(() => follow.textContent())
      .toMatch(
        new RegExp(`^/.*/wafstat.js follow --data ${sandbox.data} --project ${project_id} --source apache `),
      );
    await page.getByRole('button', { name: 'Create ingest key' }).click();
    await page.getByText('Ingest key of the user ingest-default.').waitFor();
    const event = page.locator('.command code', { hasText: '"attack": "sqli"' });
    const sh = async (command: string | null) =>
      execFileSync('sh', ['-c', command ?? ''], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });

    const broken = (await event.textContent())?.replace(
      /--data-binary .*/,
      "--data-binary 'GET /x?token=secret'",
    );
    expect(JSON.parse(await sh(broken ?? ''))).toMatchObject({ accepted: 0 });
    await page.clock.fastForward(5_000);
    await page.getByText('1 record arrived, and was dropped').waitFor();
    await page.getByText('GET /x?...').waitFor();
    await page.getByText("Run 'wafstat explain' on a few lines.").waitFor();

    expect(JSON.parse(await sh(await event.textContent()))).toMatchObject({ accepted: 1 });
    await page.clock.fastForward(5_000);
    await page.getByText('1 record counted, 1 dropped').waitFor();
    await page.getByRole('link', { name: 'Open the dashboard' }).click();
    await page.locator('.figure.attacks .value', { hasText: '1' }).waitFor();
  });

  test('the commands have the options of the service, and a file that is sent again counts once', async () => {
    const { page, sandbox, server } = service;
    await server.process.kill();
    const listen = ['--listen', new URL(server.address).host];
    await sandbox.serve([...listen, '--attack-sources', 'off', '--retention', '400d', '--hosts-max', '1000']);
    await service.enter('/console/sources');
    const follow = page.locator('.command code', { hasText: ' follow ' });
    await expect
      .poll(() => follow.textContent())
      .toContain(` --data ${sandbox.data} --retention 400d --attack-sources off --project `);
    await page.getByText('Other', { exact: true }).click();
    await page.getByRole('button', { name: 'Create ingest key' }).click();
    await page.getByText('Ingest key of the user ingest-default.').waitFor();
    const push = await page.locator('.command code', { hasText: 'Idempotency-Key' }).textContent();
    const send = (events: object[]) => {
      const file = sandbox.write('waf.log', ndjson(events));
      const command = push?.replaceAll('/var/log/waf.log', file) ?? '';
      const stdio: StdioOptions = ['ignore', 'pipe', 'ignore'];
      return JSON.parse(execFileSync('sh', ['-c', command], { encoding: 'utf8', stdio }));
    };
    const event = { time: Date.now(), host: 'a.example' };
    expect(send([event])).toMatchObject({ accepted: 1, duplicate: false });
    expect(send([event])).toMatchObject({ accepted: 0, duplicate: true });
    expect(send([event, event])).toMatchObject({ accepted: 2, duplicate: false });
  });

  test('the sources page shows records without a host, and an example and the fix of dropped ones', async () => {
    const { installation, page, sandbox } = service;
    const time = Date.now();
    const lines = [{ time }, { time }, { time, host: 'a.example' }, { time: 'yesterday' }];
    await sandbox.ingest(installation.project_id, lines);
    await service.enter('/console/sources');
    await page.getByText('2 of 3 records have no registered host').waitFor();
    await page.getByText('--host NAME').waitFor();
    await page.getByText('1 record, 25.0%').waitFor();
    await page.getByText('{"time":"yesterday"}').waitFor();
    await page.getByText('Log the time in the default form').waitFor();
    // A call that fails is repeated: the button needs its result.
    await page.route('**/setup', (route) => route.abort(), { times: 1 });
    await page.getByText('Add a source', { exact: true }).click();
    await page.getByText('What writes your logs?').waitFor();
    // A second visit shows the key of the first.
    const create = page.getByRole('button', { name: 'Create ingest key' });
    const key = page.locator('.secret code').first();
    await create.click();
    const access = await key.textContent();
    await page.getByText('Show sources', { exact: true }).click();
    await page.getByText('Add a source', { exact: true }).click();
    expect(await key.textContent()).toBe(access);
    expect(await create.count()).toBe(0);
    await page.getByText('Show sources', { exact: true }).click();
    await page.getByRole('row', { name: /Reporting/ }).waitFor();
    // The log lines of others are personal data.
    const headers = { Cookie: await service.session(await service.addUser('carol', 'console')) };
    const path = `/console/api/projects/${installation.project_id}/sources`;
    expect((await call(service.server.address, path, { headers })).text).not.toContain('yesterday');
  });

  test('an administrator adds, renames and deletes hosts', async () => {
    const { api, page, sandbox, installation } = service;
    const time = Date.now() - 60_000;
    await sandbox.ingest(installation.project_id, [{ time, host: 'Old.example' }, { time }, { time }]);
    await service.enter('/console/hosts');
    const texts = () => page.locator('tbody td:first-child').allTextContents();
    await expect.poll(texts).toEqual(['old.example', 'No host']);
    await page.getByText('Add a host').click();
    await page.getByLabel('Host name').fill('empty.example');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await expect.poll(texts).toEqual(['old.example', 'empty.example', 'No host']);
    await page.getByRole('columnheader').getByText('Host', { exact: true }).click();
    await expect.poll(texts).toEqual(['empty.example', 'old.example', 'No host']);
    await page.getByRole('button', { name: 'Rename old.example' }).click();
    await page.getByLabel('Host name').fill('empty.example');
    await page.getByRole('button', { name: 'Rename', exact: true }).click();
    await page.getByText('Another host of the project already has the name empty.example.').waitFor();
    await page.getByLabel('Host name').fill('new.example');
    await page.getByRole('button', { name: 'Rename', exact: true }).click();
    await page.getByRole('button', { name: 'Delete new.example' }).click();
    await page.getByText('Its counts stay in the total of default, without a host.').waitFor();
    await page.getByLabel('Type new.example to confirm').fill('new.example');
    await page.getByText('Delete host', { exact: true }).click();
    await expect.poll(texts).toEqual(['empty.example', 'No host']);
    expect([...(await api.hostIds()).keys()]).toEqual(['empty.example']);
    expect(await page.locator('tbody tr').last().locator('td').nth(1).textContent()).toBe('3');
  });

  test('the list shows each of 130 hosts once, and the filter of the dashboard finds them', async () => {
    const { installation, page, sandbox, api } = service;
    const hosts = Array.from({ length: 130 }, (_, i) => `host-${String(i + 1).padStart(3, '0')}.example`);
    const time = Date.now() - 60_000;
    await sandbox.ingest(
      installation.project_id,
      hosts.map((host) => ({ time, host })),
    );
    await service.enter('/console/hosts?sort=name');
    for (const shown of [50, 100]) {
      await page.getByText(`${shown} of 130 are shown`).waitFor();
      await page.getByText('Show more').click();
    }
    const listed = page.locator('tbody td:first-child');
    await expect.poll(() => listed.allTextContents()).toEqual(hosts);
    expect(await page.getByText('Show more').count()).toBe(0);
    const id = (await api.hostIds()).get('host-130.example');
    await page.goto(`/console/?host=${id}`);
    await page.getByRole('button', { name: 'Hosts: host-130.example' }).click();
    await page.getByText('30 more. Search to find them.').waitFor();
    expect(await page.locator('.host-list label').allTextContents()).toEqual(hosts.slice(0, 100));
    await page.getByLabel('Find a host').fill('HOST-13');
    await expect.poll(() => page.locator('.host-list label').allTextContents()).toEqual(['host-130.example']);
  });

  test('a new user has a password that is shown once; an administrator changes roles, resets it and deletes the user', async () => {
    const { installation, server, page } = service;
    await service.enter('/console/admin');
    await page.getByText('New user').click();
    await page.getByLabel('Name', { exact: true }).fill('erin');
    await page.getByLabel('Role').selectOption('ingest');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText("Generated password. Copy it now; it won't be shown again.").waitFor();
    const shown = page.locator('.secret code');
    const { domain, project_id } = installation;
    const erin = { user: 'erin', domain, project_id, password: (await shown.textContent()) ?? '' };
    const first = await login(server.address, erin);
    await page.getByText('Done', { exact: true }).click();
    await page.getByText('ingest in default').waitFor();
    expect(await page.content()).not.toContain(erin.password);

    await page.getByRole('button', { name: 'Edit erin' }).click();
    const roles = page.getByRole('group', { name: 'default' });
    await roles.getByText('ingest').click();
    await roles.getByText('reader').click();
    await page.getByText('Save roles').click();
    await page.getByText('Roles saved.').waitFor();
    expect((await first.get('connections')).status).toBe(200);
    await page.getByText('Create access key').click();
    await page.getByText("Copy the key now; the secret won't be shown again.").waitFor();
    await page.getByText('Reset password').click();
    await page.getByText('all sessions and tokens of erin end').waitFor();
    await page.getByRole('button', { name: 'Reset password', exact: true }).click();
    await page.getByRole('heading', { name: 'Password of erin', exact: true }).waitFor();
    expect((await first.get('connections')).status).toBe(401);
    const second = await login(server.address, { ...erin, password: (await shown.textContent()) ?? '' });
    await page.getByText('Done', { exact: true }).click();

    await page.getByRole('button', { name: 'Disable erin' }).click();
    // After an error, the button works again.
    await page.route('**/v3/users/*', (route) => route.abort(), { times: 1 });
    await page.getByText('Disable user', { exact: true }).click();
    await page.getByText('It may be restarting, or the network is down.').waitFor();
    await page.getByText('Disable user', { exact: true }).click();
    await page.getByRole('button', { name: 'Enable erin' }).click();
    expect((await second.get('connections')).status).toBe(401);
    await page.getByRole('button', { name: 'Delete erin' }).click();
    await page.getByText('loses all roles and the access key').waitFor();
    await page.getByLabel('Type erin to confirm').fill('erin');
    await page.getByText('Delete user', { exact: true }).click();
    await expect.poll(() => page.getByText('reader in default').count()).toBe(0);
    for (const verb of ['Disable', 'Delete'])
      expect(await page.getByRole('button', { name: `${verb} ${installation.user}` }).count()).toBe(0);
  });

  test('roles that were not saved because of an error are saved with a second click', async () => {
    const { sandbox, page } = service;
    await sandbox.runJson<{ id: string }>('project', 'add', 'shop');
    await service.addUser('erin', 'both');
    await service.enter('/console/admin');
    await page.getByRole('button', { name: 'Edit erin' }).click();
    await page.getByRole('group', { name: 'default' }).getByText('reader').click();
    await page.getByRole('group', { name: 'shop' }).getByText('ingest').click();
    await page.getByRole('group', { name: 'All projects' }).getByText('reader').click();
    await page.route('**/v3/domains/**', (route) => route.abort(), { times: 1 });
    await page.getByText('Save roles').click();
    await page.getByText('It may be restarting, or the network is down.').waitFor();
    const outcome = await page.locator('dialog .outcome').textContent();
    expect(outcome).toMatch(/Saved: .*grant ingest in shop.*\. Not saved: grant reader in All projects\.$/);
    expect(outcome).toContain('revoke reader in default');
    await page.getByText('Save roles').click();
    await page.getByText('Roles saved.').waitFor();
    await page.getByText('Close', { exact: true }).click();
    await page
      .getByText(/^(reader in all projects; ingest in shop|ingest in shop; reader in all projects)$/)
      .waitFor();
  });

  test('the last project is disabled or deleted only if its name is typed, and administration still works', async () => {
    const { page } = service;
    await service.enter('/console/admin');
    await page.getByRole('button', { name: 'Disable default' }).click();
    await page.getByText('It is the last enabled project').waitFor();
    const disable = page.getByRole('button', { name: 'Disable project' });
    const typed = (name: string) => page.getByLabel(`Type ${name} to confirm`);
    const isValid = (name: string) => typed(name).evaluate((one) => one.matches(':valid'));
    expect(await isValid('default')).toBe(false);
    await typed('default').fill('other');
    await disable.click();
    expect(await isValid('default')).toBe(false);
    await page.getByText('Cancel').click();
    await page.getByRole('button', { name: 'Disable default' }).click();
    await typed('default').fill('default');
    await disable.click();
    await page.getByText('There is no enabled project').waitFor();

    // Administrators land on administration, and everyone can sign out.
    await page.goto('/console/');
    await page.getByRole('heading', { name: 'Users and projects' }).waitFor();
    await page.getByText('Hosts', { exact: true }).click();
    await page.getByText('Create or enable a project').click();
    await page.getByRole('button', { name: 'Enable default' }).click();
    await page.getByRole('button', { name: 'Disable default' }).waitFor();
    await expect.poll(() => page.getByText('There is no enabled project').count()).toBe(0);
    await page.getByText('New project').click();
    await page.getByLabel('Name', { exact: true }).fill('shop');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('button', { name: 'Delete default' }).click();
    await typed('default').fill('default');
    await page.getByRole('button', { name: 'Delete project' }).click();
    await expect
      .poll(() => page.getByLabel('Project', { exact: true }).locator('option').allTextContents())
      .toEqual(['shop']);

    await page.getByRole('button', { name: 'Edit admin' }).click();
    await page.getByRole('group', { name: 'All projects' }).getByText('admin').click();
    await page.getByText('Save roles').click();
    await page.getByText('You are the last administrator of the domain.').waitFor();
    expect(await isValid('admin')).toBe(false);
    await page.getByText('Cancel').click();
    await page.getByText('Close', { exact: true }).click();
    await service.signOut();
  });

  test('an administrator reads, filters and exports the audit trail; others do not see it', async () => {
    const { page } = service;
    const carol = await service.addUser('carol', 'console');
    await service.enter('/console/admin');
    await page.getByText('New project').click();
    await page.getByLabel('Name', { exact: true }).fill('shop');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('button', { name: 'Delete shop' }).waitFor();
    await page.getByRole('link', { name: 'Audit trail' }).click();
    const rows = page.getByRole('region', { name: 'Audit trail' }).locator('tbody tr');
    const first = rows.first();
    await expect.poll(() => first.innerText()).toContain('project shop');
    for (const text of ['admin', '127.0.0.1', 'console', 'project.add', 'done'])
      expect(await first.innerText()).toContain(text);
    await expect.poll(() => rows.filter({ hasText: 'user carol' }).count()).toBeGreaterThan(0);
    await page.getByLabel('Action').selectOption('Users');
    await expect.poll(() => rows.filter({ hasText: 'project shop' }).count()).toBe(0);
    await page.getByLabel('Action').selectOption('All actions');
    await page.getByLabel('Name or ID of a user').fill('admin');
    await expect.poll(() => rows.filter({ hasText: 'user carol' }).count()).toBe(0);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Download CSV' }).click(),
    ]);
    const [head, line] = (await text(await download.createReadStream())).split('\r\n');
    expect(head).toMatch(/^time,user,user_id,via,address,/);
    expect(line).toMatch(/^\d{4}-.+,admin,\w+,console,127\.0\.0\.1,.*,project\.add,project,\w+,shop,done,/);
    await page.getByLabel('From').fill('2020-01-01');
    await page.getByLabel('Until').fill('2020-01-02');
    await page.getByText('No matching record.').waitFor();
    await service.signOut();
    await service.enter('/console/audit', carol);
    await page.getByText('Only administrators of the domain can see this page.').waitFor();
    expect(await page.getByRole('link', { name: 'Audit trail' }).count()).toBe(0);
  });
});
