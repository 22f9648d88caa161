/** Management of access keys, the password, hosts, users and projects. */
import { execFileSync } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { sign } from '@wafstat/signer';
import { expect, test } from 'vitest';
import { call, login, requestToken, tokenRequest } from './api.ts';
import { describeService } from './console-fixtures.ts';

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

  test('the commands on the first-run page work unchanged', async () => {
    const { installation, page } = service;
    await page.clock.install();
    await service.enter('/console/');
    await page.getByText('default has no data yet').waitFor();
    const commands = await page.locator('.command code').allTextContents();
    const token = commands
      .find((line) => line.startsWith('TOKEN='))
      ?.replace('PASSWORD', installation.password);
    const event = commands.find((line) => line.includes('"attack": "sqli"'));
    const response = execFileSync('sh', ['-c', `${token}\n${event}`], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    expect(JSON.parse(response)).toMatchObject({ accepted: 1 });
    await page.clock.fastForward(5_000);
    await page.locator('.figure.attacks .value', { hasText: '1' }).waitFor();
  });

  test('the sources page shows records without a host and how to fix them', async () => {
    const { installation, page, sandbox } = service;
    const time = Date.now();
    await sandbox.ingest(installation.project_id, [{ time }, { time }, { time, host: 'a.example' }]);
    await service.enter('/console/sources');
    await page.getByText('2 of 3 records have no registered host').waitFor();
    await page.getByText('--host NAME').waitFor();
    await page.getByRole('columnheader', { name: 'Without host' }).waitFor();
    await sandbox.ingest(installation.project_id, [{ time, host: 'a.example' }], '--source', 'named');
    await page.reload();
    const row = page.getByRole('row', { name: /^named/ });
    await row.waitFor();
    expect(await row.getByRole('cell').nth(7).textContent()).toBe('0');
  });

  test('an administrator adds and renames hosts', async () => {
    const { api, page } = service;
    await service.enter('/console/hosts');
    await page.getByRole('button', { name: 'Add a host' }).click();
    await page.getByLabel('Host name').fill('Old.example');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Rename old.example' }).click();
    await page.getByLabel('Host name').fill('new.example');
    await page.getByRole('button', { name: 'Rename', exact: true }).click();
    await page.getByRole('button', { name: 'Rename new.example' }).waitFor();
    expect([...(await api.hostIds()).keys()]).toEqual(['new.example']);
    await page.getByRole('button', { name: 'Add a host' }).click();
    await page.getByLabel('Host name').fill('new.example');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('The project already has a host new.example.').waitFor();
  });

  test('the list shows each of 130 hosts once, and the filter of the dashboard finds them', async () => {
    const { installation, page, sandbox, api } = service;
    const hosts = Array.from({ length: 130 }, (_, i) => `host-${String(i + 1).padStart(3, '0')}.example`);
    const time = Date.now() - 60_000;
    await sandbox.ingest(
      installation.project_id,
      hosts.map((host) => ({ time, host })),
    );
    await service.enter('/console/hosts?order=name');
    const listed: string[] = [];
    for (const pageOfHosts of ['1 to 25', '26 to 50', '51 to 75', '76 to 100', '101 to 125', '126 to 130']) {
      await page.getByText(`${pageOfHosts} of 130`).waitFor();
      listed.push(...(await page.locator('tbody td:first-child').allTextContents()));
      if (listed.length < hosts.length) await page.getByRole('button', { name: 'Next', exact: true }).click();
    }
    expect(listed).toEqual(hosts);
    const id = (await api.hostIds()).get('host-130.example');
    await page.goto(`/console/?host=${id}`);
    await page.getByRole('button', { name: 'Hosts: host-130.example' }).click();
    await page.getByText('30 more. Search to find them.').waitFor();
    expect(await page.locator('.host-list label').allTextContents()).toEqual(hosts.slice(0, 100));
    await page.getByLabel('Find a host').fill('HOST-13');
    await expect.poll(() => page.locator('.host-list label').allTextContents()).toEqual(['host-130.example']);
  });

  test('an administrator creates and disables users and projects', async () => {
    const { installation, server, page } = service;
    await service.enter('/console/admin');
    await page.getByRole('button', { name: 'New project' }).click();
    await page.getByLabel('Name', { exact: true }).fill('shop');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByLabel('Project', { exact: true }).selectOption({ label: 'shop' });
    await page.getByRole('button', { name: 'New user' }).click();
    await page.getByLabel('Name', { exact: true }).fill('erin');
    const password = await page.getByLabel('Password').inputValue();
    await page.getByLabel('Access (cannot be changed later)').selectOption('programmatic');
    await page.getByLabel('Role').selectOption('ingest');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText('ingest in shop').waitFor();
    const project_id = new URL(page.url()).searchParams.get('project') ?? '';
    const erin = { user: 'erin', domain: installation.domain, password, project_id };
    await login(server.address, erin);
    // After an error, the button works again.
    await page.route('**/console/api/users/*', (route) => route.abort(), { times: 1 });
    await page.getByRole('button', { name: 'Disable erin' }).click();
    await page.getByText('It may be restarting, or the network is down.').waitFor();
    await page.getByRole('button', { name: 'Disable erin' }).click();
    await page.getByRole('button', { name: 'Enable erin' }).waitFor();
    expect((await requestToken(server.address, tokenRequest(erin))).status).toBe(401);
    await page.getByRole('button', { name: 'Enable erin' }).click();
    await page.getByRole('button', { name: 'Disable shop' }).click();
    await page.getByRole('button', { name: 'Enable shop' }).waitFor();
    expect((await requestToken(server.address, tokenRequest(erin))).status).not.toBe(201);
    expect(await page.getByRole('button', { name: `Disable ${installation.user}` }).count()).toBe(0);
  });
});
