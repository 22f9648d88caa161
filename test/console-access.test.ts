/** Who can sign in to the console, and what a session gives access to. */
import { expect, test } from 'vitest';
import { call, requestToken, tokenRequest } from './api.ts';
import { CONSOLE, describeService, signIn } from './console-fixtures.ts';

describeService('access', (service) => {
  test('a console-only user can sign in, but can get neither a token nor an access key', async () => {
    const { installation, server, api, page } = service;
    const carol = await service.addUser('carol', 'console');
    await service.enter('/console/credentials', carol);
    await page.getByText('only supports console access').waitFor();
    expect(await page.getByRole('button', { name: 'Create access key' }).count()).toBe(0);
    const refused = await requestToken(
      server.address,
      tokenRequest({ ...carol, project_id: installation.project_id }),
    );
    expect(refused.status).toBe(403);
    const Cookie = await service.session(carol);
    const project = installation.project_id;
    const statuses = (paths: readonly [string, string, string?][]) =>
      Promise.all(
        paths.map(async ([method, path, body]) => {
          const headers = { ...CONSOLE, Cookie, 'X-Subject-Token': Cookie.split('=')[1] };
          return (await call(server.address, path, { method, headers, ...(body ? { body } : {}) })).status;
        }),
      );
    expect(await statuses([['GET', `/v1/${project}/connections`]])).toEqual([200]);
    expect(
      await statuses([
        ['GET', '/v3/auth/tokens'],
        ['POST', `/ingest/v1/${project}`, '{"time": 1}'],
      ]),
    ).toEqual([401, 401]);
    const session = await call(server.address, '/console/api/session', { headers: { Cookie } });
    const { id } = JSON.parse(session.text).user;
    const key = JSON.stringify({ credential: { user_id: id } });
    expect(await statuses([['POST', '/v3.0/OS-CREDENTIAL/credentials', key]])).toEqual([403]);
    const asToken = { 'X-Auth-Token': Cookie.split('=')[1] };
    expect((await call(server.address, `/v1/${project}/connections`, { headers: asToken })).status).toBe(401);
    const asSession = { Cookie: `wafstat_session=${api.token}` };
    expect((await call(server.address, `/v1/${project}/connections`, { headers: asSession })).status).toBe(
      401,
    );
  });

  test('the first visit causes no failed request, which the browser would report', async () => {
    const { page } = service;
    const failed: string[] = [];
    page.on('response', (response) => {
      if (response.status() >= 400) failed.push(`${response.status()} ${response.url()}`);
    });
    await page.goto('/console/', { waitUntil: 'networkidle' });
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    expect(failed).toEqual([]);
  });

  test('a programmatic-only user cannot sign in, and sees why', async () => {
    const { page } = service;
    await page.goto('/console/');
    await signIn(page, await service.addUser('robot', 'programmatic'));
    await page.getByText('This user only supports programmatic access, not console access.').waitFor();
    expect(await page.context().cookies()).toEqual([]);
  });

  test('the sign-in page replaces a page whose session ended, and leads back to it', async () => {
    const { sandbox, page } = service;
    const dave = await service.addUser('dave', 'console');
    // Not live: a refresh would end the session before the click.
    await service.enter('/console/hosts?range=7days&live=off&sort=name', dave);
    await page.locator('.content[aria-busy="false"]').waitFor();
    await sandbox.run(['user', 'disable', 'dave', '--data', sandbox.data]);
    await page.getByTitle('Last 30 days').click();
    await page.getByText('Your session has ended: the user of the session is disabled.').waitFor();
    await signIn(page, dave);
    await page.getByText('This user is disabled.').waitFor();
    await sandbox.run(['user', 'enable', 'dave', '--data', sandbox.data]);
    await signIn(page, dave);
    await page.getByRole('heading', { name: 'Hosts', exact: true }).waitFor();
    expect(page.url()).toContain('/console/hosts?range=30days&tz=UTC&live=off&sort=name');
  });

  test('users without a role, or with the role ingest only, see why there is nothing, and can sign out', async () => {
    const { sandbox, installation, page } = service;
    const eve = await service.addUser('eve', 'both');
    const { project_id } = installation;
    const role = async (verb: string, name: string) =>
      sandbox.run(['user', verb, 'eve', '--role', name, '--project', project_id, '--data', sandbox.data]);
    await role('grant', 'ingest');
    await role('revoke', 'reader');
    await service.enter('/console/sources', eve);
    for (const name of ['Dashboard', 'Hosts', 'Sources']) {
      await page.getByRole('link', { name, exact: true }).click();
      await page.getByText('You cannot view the statistics of default').waitFor();
      expect(await page.locator('.skeleton').count()).toBe(0);
    }
    await role('revoke', 'ingest');
    await page.reload();
    await page.getByText('You have no role in any project. Ask your administrator for one.').waitFor();
    await page.getByText('My credentials').click();
    await page.getByText('Access keys', { exact: true }).waitFor();
    await service.signOut();
  });

  test('a page that does not exist says so, with the status 404', async () => {
    const { page } = service;
    const response = await page.goto('/console/nope');
    expect(response?.status()).toBe(404);
    await signIn(page, service.installation);
    await page.getByText('There is no such page').waitFor();
    expect(new URL(page.url()).pathname).toBe('/console/nope');
    await page.getByText('Open the dashboard').click();
    await page.getByText('default has no data yet').waitFor();
    expect(new URL(page.url()).pathname).toBe('/console/');
  });

  test('markup in a host name is shown as text on every page', async () => {
    const { sandbox, installation, page } = service;
    const evil = '<img/src=x/onerror=document.title="pwned">';
    const now = Date.now();
    await sandbox.ingest(installation.project_id, [
      { time: now - 60_000, host: '<script>document.title="pwned"</script>', attack: 'xss' },
      { time: now - 60_000, host: evil, attack: 'xss' },
      { time: now - 60_000, host: evil, attack: 'xss' },
    ]);
    await service.enter('/console/?range=1hour');
    await expect.poll(() => page.locator('.figure.busiest .value').textContent()).toBe(evil);
    await page.getByRole('button', { name: /^Hosts/ }).click();
    await page.getByRole('checkbox', { name: '<script>' }).check();
    await page.getByRole('link', { name: 'Hosts', exact: true }).click();
    await page.getByRole('button', { name: `Rename ${evil}` }).click();
    await page.getByLabel('Host name').waitFor();
    expect(await page.locator('main script, main img, dialog img, dialog script').count()).toBe(0);
    expect(await page.title()).toContain('wafstat');
  });

  test('a project in which the user has no role is neither shown nor accessible', async () => {
    const { sandbox, installation, server, page } = service;
    await sandbox.ingest(installation.project_id, [{ time: Date.now() - 60_000, host: 'own.example' }]);
    const other = await sandbox.runJson<{ id: string }>('project', 'add', 'secret project');
    await sandbox.ingest(other.id, [{ time: Date.now() - 60_000, host: 'hidden.example', attack: 'sqli' }]);
    const carol = await service.addUser('carol', 'both');
    await service.enter(`/console/?project=${other.id}`, carol);
    // The numbers of another project would look like those of the link.
    await page.getByText('You cannot view the project of this link').waitFor();
    expect(await page.locator('.figures').count()).toBe(0);
    expect(await page.content()).not.toContain('secret project');
    await page.locator('main').getByRole('link', { name: 'default' }).click();
    await expect.poll(() => page.locator('.figure.requests .value').textContent()).toBe('1');
    expect(new URL(page.url()).searchParams.get('project')).toBe(installation.project_id);
    const headers = { Cookie: await service.session(carol), ...CONSOLE };
    for (const [method, path] of [
      ['GET', `/v1/${other.id}/connections`],
      ['POST', `/console/api/projects/${other.id}/figures`],
      ['POST', `/v1/${other.id}/waf/instance`],
      ['POST', `/v1/${installation.project_id}/waf/instance`],
      ['GET', '/v3/users'],
    ] as const) {
      const response = await call(server.address, path, {
        method,
        headers,
        ...(method === 'POST' ? { body: '{"hostname": "x"}' } : {}),
      });
      expect([path, response.status]).toEqual([path, 403]);
    }
  });

  test('changes are accepted from pages of the console only', async () => {
    const { installation, server } = service;
    const Cookie = await service.session(installation);
    const attempt = (headers: Record<string, string>) =>
      call(server.address, '/v3/projects', {
        method: 'POST',
        headers: { Cookie, ...headers },
        body: '{"project": {"name": "x"}}',
      });
    expect((await attempt({})).status).toBe(403);
    expect((await attempt({ ...CONSOLE, Origin: 'https://evil.example' })).status).toBe(403);
    expect((await attempt({ ...CONSOLE, 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
    expect((await attempt({ ...CONSOLE, Origin: server.address })).status).toBe(201);
    const body = JSON.stringify(installation);
    const login = await call(server.address, '/console/api/session', { method: 'POST', body });
    expect(login.status).toBe(403);
  });
});
