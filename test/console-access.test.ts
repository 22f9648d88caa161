/** Who may do what in the console, and what it manages. */
import { readFileSync } from 'node:fs';
import { sign } from '@wafstat/signer';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, askToken, call, login, tokenRequest } from './api.ts';
import { HAS_BROWSER, openBrowser, signIn, type Visit, visit } from './browser.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const CONSOLE = { 'X-Wafstat-Console': '1', 'Content-Type': 'application/json' };

describe.skipIf(!HAS_BROWSER)('access through the console', () => {
  let sandbox: Sandbox;
  let browser: Browser;
  let installation: Installation;
  let server: Server;
  let api: Api;
  let visitor: Visit;
  let page: Page;
  let admin: { user: string; domain: string; password: string };

  beforeAll(async () => {
    browser = await openBrowser();
  });

  afterAll(() => browser.close());

  beforeEach(async () => {
    sandbox = new Sandbox();
    ({ installation, server, api } = await sandbox.service());
    admin = installation;
    visitor = await visit(browser, server.address);
    page = visitor.page;
  });

  afterEach(async () => {
    await visitor.close();
    await sandbox.clear();
    expect(visitor.complaints).toEqual([]);
  });

  async function addUser(
    name: string,
    access: string,
  ): Promise<{ user: string; domain: string; password: string }> {
    const made = await sandbox.runJson<{ password: string }>(
      'user',
      'add',
      name,
      '--access',
      access,
      '--role',
      'reader',
      '--project',
      installation.project_id,
    );
    return { user: name, domain: installation.domain, password: made.password };
  }

  async function enter(path: string, account = admin): Promise<void> {
    await page.goto(path);
    await signIn(page, account);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
  }

  /** Signs in without a browser; answers the cookie. */
  async function session(account: { user: string; domain: string; password: string }): Promise<string> {
    const { user, domain, password } = account;
    const answer = await call(server.address, '/console/api/session', {
      method: 'POST',
      headers: CONSOLE,
      body: JSON.stringify({ user, domain, password }),
    });
    expect(answer.status).toBe(201);
    return String(answer.headers['set-cookie']?.[0]).split(';')[0] ?? '';
  }

  test('a console-only user can sign in here, but gets no token, and the session opens no door to one', async () => {
    const carol = await addUser('carol', 'console');
    await enter('/console/credentials', carol);
    await page.getByText('only supports console access').waitFor();
    expect(await page.getByRole('button', { name: 'Create a key' }).count()).toBe(0);
    const refused = await askToken(
      server.address,
      tokenRequest({ ...carol, project_id: installation.project_id }),
    );
    expect(refused.status).toBe(403);
    const Cookie = await session(carol);
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
        ['GET', '/v3/auth/projects'],
        ['GET', '/v3.0/OS-CREDENTIAL/credentials'],
        ['POST', '/v3.0/OS-CREDENTIAL/credentials', '{"credential": {"user_id": "x"}}'],
        ['POST', `/ingest/v1/${project}`, '{"time": 1}'],
      ]),
    ).toEqual([401, 401, 401, 401, 401]);
    expect(await statuses([['POST', '/console/api/keys', '{}']])).toEqual([403]);
    const asToken = { 'X-Auth-Token': Cookie.split('=')[1] };
    expect((await call(server.address, `/v1/${project}/connections`, { headers: asToken })).status).toBe(401);
    const asSession = { Cookie: `wafstat_session=${api.token}` };
    expect((await call(server.address, `/v1/${project}/connections`, { headers: asSession })).status).toBe(
      401,
    );
  });

  test('a programmatic-only user cannot sign in here, and is told why', async () => {
    await page.goto('/console/');
    await signIn(page, await addUser('robot', 'programmatic'));
    await page.getByText('This user only supports programmatic access, not console access.').waitFor();
    expect(await page.context().cookies()).toEqual([]);
  });

  test('a new key downloads as a file whose key signs a query; two are the limit', async () => {
    await enter('/console/credentials');
    await page.getByLabel('What is it for?').fill('Nightly report');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Create a key' }).click(),
    ]);
    expect(download.suggestedFilename()).toBe('credentials.csv');
    const csv = readFileSync(await download.path(), 'utf8');
    const [head, line = ''] = csv.split('\r\n');
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
      page.getByRole('button', { name: 'Create a key' }).click(),
    ]);
    await page.getByText('at most 2 access keys').waitFor();
    await page.getByText('The key file has been downloaded.').waitFor();
    expect(await page.getByRole('button', { name: 'Create a key' }).isVisible()).toBe(false);
    await page.getByRole('button', { name: `Delete ${access}` }).click();
    await page.getByRole('button', { name: 'Delete the key' }).click();
    await expect.poll(() => page.getByRole('row').count()).toBe(2);
    expect(await signed()).toBe(401);
  });

  test('a changed password ends every other session and token at once', async () => {
    const elsewhere = await session(admin);
    await enter('/console/credentials');
    const change = async (old: string, fresh: string, again: string) => {
      await page.getByLabel('Old password').fill(old);
      await page.getByLabel('New password', { exact: true }).fill(fresh);
      await page.getByLabel('New password once more').fill(again);
      await page.getByRole('button', { name: 'Change the password' }).click();
    };
    await change('wrong', 'new password', 'new password');
    await page.getByText('The old password is wrong.').waitFor();
    await change(admin.password, 'new password', 'other password');
    await page.getByText('The two new passwords differ.').waitFor();
    await change(admin.password, 'new password', 'new password');
    await page.getByText('The password has been changed.').waitFor();
    await page.getByRole('link', { name: 'Sources' }).click();
    await page.getByText('has no data yet').waitFor();
    const path = `/v1/${installation.project_id}/connections`;
    expect((await call(server.address, path, { headers: { Cookie: elsewhere } })).status).toBe(401);
    expect((await api.get('connections')).status).toBe(401);
    await login(server.address, { ...installation, password: 'new password' });
  });

  test('an ended session leads to the sign-in, and from there back to where one was', async () => {
    const dave = await addUser('dave', 'console');
    await enter('/console/hosts?range=7days&order=name', dave);
    await sandbox.run(['user', 'disable', 'dave', '--data', sandbox.data]);
    await page.getByTitle('Last 3 days').click();
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    await signIn(page, dave);
    await page.getByText('This user is disabled.').waitFor();
    await sandbox.run(['user', 'enable', 'dave', '--data', sandbox.data]);
    await signIn(page, dave);
    await page.getByRole('heading', { name: 'Hosts', exact: true }).waitFor();
    expect(page.url()).toContain('/console/hosts?range=3days&order=name');
  });

  test('markup in a host name stays text, wherever it is shown', async () => {
    const evil = '<img/src=x/onerror=document.title="pwned">';
    const now = Date.now();
    await sandbox.ingest(installation.project_id, [
      { time: now - 60_000, host: '<script>document.title="pwned"</script>', attack: 'xss' },
      { time: now - 60_000, host: evil, attack: 'xss' },
      { time: now - 60_000, host: evil, attack: 'xss' },
    ]);
    await enter('/console/?range=1hour');
    await expect.poll(() => page.locator('.figure.busiest .value').textContent()).toBe(evil);
    await page.getByRole('button', { name: /^Hosts/ }).click();
    await page.getByLabel('<script>').check();
    await page.getByRole('link', { name: 'Hosts', exact: true }).click();
    await page.getByRole('button', { name: `Rename ${evil}` }).click();
    await page.getByLabel('Host name').waitFor();
    expect(await page.locator('main script, main img, dialog img, dialog script').count()).toBe(0);
    expect(await page.title()).toContain('wafstat');
  });

  test('a project in which the user has no role is not there for them', async () => {
    const other = await sandbox.runJson<{ id: string }>('project', 'add', 'secret project');
    await sandbox.ingest(other.id, [{ time: Date.now() - 60_000, host: 'hidden.example', attack: 'sqli' }]);
    const carol = await addUser('carol', 'both');
    await enter(`/console/?project=${other.id}`, carol);
    await page.getByText('default has no data yet').waitFor();
    expect(new URL(page.url()).searchParams.get('project')).toBe(installation.project_id);
    expect(await page.content()).not.toContain('secret project');
    const headers = { Cookie: await session(carol), ...CONSOLE };
    for (const [method, path] of [
      ['GET', `/v1/${other.id}/connections`],
      ['GET', `/console/api/projects/${other.id}/hosts/figures?from=0&to=1`],
      ['POST', `/console/api/projects/${other.id}/hosts`],
      ['POST', `/console/api/projects/${installation.project_id}/hosts`],
      ['GET', '/console/api/users'],
    ] as const) {
      const answer = await call(server.address, path, {
        method,
        headers,
        ...(method === 'POST' ? { body: '{"hostname": "x"}' } : {}),
      });
      expect([path, answer.status]).toEqual([path, 403]);
    }
  });

  test('a first-run page has commands that work as they stand', async () => {
    await enter('/console/');
    await page.getByText('default has no data yet').waitFor();
    const commands = await page.locator('.command code').allTextContents();
    const token = commands.find((line) => line.startsWith('TOKEN='))?.replace('PASSWORD', admin.password);
    const event = commands.find((line) => line.includes('"attack": "sqli"'));
    const { execFileSync } = await import('node:child_process');
    const answer = execFileSync('sh', ['-c', `${token}\n${event}`], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    expect(JSON.parse(answer)).toMatchObject({ accepted: 1 });
    await page.locator('.figure.attacks .value', { hasText: '1' }).waitFor();
  });

  test('an administrator adds and renames hosts', async () => {
    await enter('/console/hosts');
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
    await page.getByText('New.example is registered already.').waitFor();
  });

  test('an administrator makes users and projects, and disables them', async () => {
    await enter('/console/admin');
    await page.getByRole('button', { name: 'New project' }).click();
    await page.getByLabel('Name', { exact: true }).fill('shop');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByLabel('Project', { exact: true }).selectOption({ label: 'shop' });
    await page.getByRole('button', { name: 'New user' }).click();
    await page.getByLabel('Name', { exact: true }).fill('erin');
    const password = await page.getByLabel('Password').inputValue();
    await page.getByLabel('May sign in to').selectOption('programmatic');
    await page.getByLabel('Role').selectOption('ingest');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText('ingest in shop').waitFor();
    const project_id = new URL(page.url()).searchParams.get('project') ?? '';
    const erin = { user: 'erin', domain: installation.domain, password, project_id };
    await login(server.address, erin);
    await page.getByRole('button', { name: 'Disable erin' }).click();
    await page.getByRole('button', { name: 'Enable erin' }).waitFor();
    expect((await askToken(server.address, tokenRequest(erin))).status).toBe(401);
    await page.getByRole('button', { name: 'Enable erin' }).click();
    await page.getByRole('button', { name: 'Disable shop' }).click();
    await page.getByRole('button', { name: 'Enable shop' }).waitFor();
    expect((await askToken(server.address, tokenRequest(erin))).status).not.toBe(201);
    expect(await page.getByRole('button', { name: `Disable ${admin.user}` }).count()).toBe(0);
  });

  test('what changes something must come from a page of ours', async () => {
    const Cookie = await session(admin);
    const attempt = (headers: Record<string, string>) =>
      call(server.address, '/console/api/projects', {
        method: 'POST',
        headers: { Cookie, ...headers },
        body: '{"name": "x"}',
      });
    expect((await attempt({})).status).toBe(403);
    expect((await attempt({ ...CONSOLE, Origin: 'https://evil.example' })).status).toBe(403);
    expect((await attempt({ ...CONSOLE, 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
    expect((await attempt({ ...CONSOLE, Origin: server.address })).status).toBe(201);
    const body = JSON.stringify(admin);
    const login = await call(server.address, '/console/api/session', { method: 'POST', body });
    expect(login.status).toBe(403);
  });
});
