/** The console in a real browser: who may enter, and whether the numbers are the API's. */
import { expect, test } from 'vitest';
import { call, sum } from './api.ts';
import { signIn } from './browser.ts';
import { DAY_MS, describeDemo, FIXED, FROM } from './console-demo.ts';

describeDemo('the console', (demo) => {
  test('a browser that asks for / comes to the sign-in, and from there to the dashboard and out again', async () => {
    await demo.page.goto('/');
    expect(new URL(demo.page.url()).pathname).toBe('/console/');
    await signIn(demo.page, { ...demo.account, password: 'wrong' });
    await demo.page.getByText('The user, the domain or the password is wrong.').waitFor();
    await signIn(demo.page, demo.account);
    await demo.loaded();
    const cookies = await demo.page.context().cookies();
    const cookie = cookies.find(({ name }) => name === 'wafstat_session');
    expect(cookie).toMatchObject({ name: 'wafstat_session', httpOnly: true, sameSite: 'Strict', path: '/' });
    await demo.page.getByRole('button', { name: 'Sign out' }).click();
    await demo.page.getByRole('button', { name: 'Sign in' }).waitFor();
    const left = (await demo.page.context().cookies()).map(({ name }) => name);
    expect(left).toEqual(['wafstat_device']);
    const path = `/v1/${demo.api.project}/connections`;
    const stolen = { Cookie: `${cookie?.name}=${cookie?.value}` };
    expect((await call(demo.address, path, { headers: stolen })).status).toBe(401);
    await demo.page.reload();
    await demo.page.getByRole('button', { name: 'Sign in' }).waitFor();
  });

  test('the figures and the bars equal the answers of the API', async () => {
    await demo.open(`/console/?${FIXED}`);
    const timeline = await demo.api.timeline(`${FIXED}&timezone=%2B00:00`);
    const distribution = await demo.api.distribution(FIXED);
    expect(await demo.number('requests')).toBe(sum(timeline.requests));
    expect(await demo.number('attacks')).toBe(sum(timeline.attacks));
    expect(await demo.categories()).toEqual(distribution);
    expect(Object.keys(await demo.categories())).toHaveLength(13);
    const share = (sum(timeline.attacks) / sum(timeline.requests)) * 100;
    expect(await demo.figure('share')).toBe(`${share.toFixed(1)} %`);
    const hosts = await Promise.all(
      [...(await demo.api.hostIds())].map(async ([hostname, id]) => {
        const { requests } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
        return { hostname, requests: sum(requests) };
      }),
    );
    const [busiest] = hosts.toSorted((a, b) => b.requests - a.requests);
    expect(await demo.figure('busiest')).toBe(busiest?.hostname);
    const before = await demo.api.timeline(`from=${FROM - DAY_MS}&to=${FROM}`);
    const percent = (sum(timeline.requests) / sum(before.requests) - 1) * 100;
    const change = `${percent < 0 ? '−' : '+'}${Math.abs(percent).toFixed(1)} %`;
    expect(await demo.page.locator('.figure.requests .difference').textContent()).toContain(change);
  });

  test('the table beside the timeline adds up to what the API answers', async () => {
    await demo.open(`/console/?${FIXED}`);
    await demo.page.getByRole('button', { name: 'Table' }).click();
    const rows = demo.page.getByRole('region', { name: 'Timeline as a table' }).locator('tbody tr');
    const cells = await rows.evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
    );
    const { requests } = await demo.api.timeline(FIXED);
    const counted = cells.map(([, n = '']) => Number(n.replaceAll(',', '')));
    expect(counted.reduce((total, n) => total + n, 0)).toBe(sum(requests));
    expect(cells[0]?.[0]).toMatch(/, 00:00 – 00:0\d$/);
  });

  test('hosts have the numbers of the API, and the sources say what they sent', async () => {
    await demo.open(`/console/?${FIXED}`);
    await demo.page.getByRole('link', { name: 'Hosts', exact: true }).click();
    const row = demo.page.getByRole('row', { name: /www\.example\.com/ });
    const id = (await demo.api.hostIds()).get('www.example.com');
    const { requests, attacks } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
    const cells = await row.locator('td.number').allTextContents();
    expect(cells.slice(0, 2).map((text) => Number(text.replaceAll(',', '')))).toEqual([
      sum(requests),
      sum(attacks),
    ]);
    await demo.page.getByLabel('Order').selectOption('name');
    await expect.poll(() => demo.page.locator('tbody tr').first().textContent()).toContain('api.example.com');
    await demo.page.getByLabel('Find a host').fill('legacy');
    await expect.poll(() => demo.page.locator('tbody tr').count()).toBe(1);
    await demo.page.getByRole('link', { name: 'Sources' }).click();
    await demo.page.getByText('sample traffic').waitFor();
    await demo.page.getByText('Reporting').waitFor();
  });

  test('it loads with few requests, in less than 150 KB of script, under a strict policy', async () => {
    await demo.open('/console/?live=off');
    const answer = await demo.page.reload();
    await demo.loaded();
    const policy = answer?.headers()['content-security-policy'] ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain('unsafe');
    const scripts = await demo.page.evaluate<number>(`performance.getEntriesByType('resource')
      .filter(({ name }) => name.endsWith('.js'))
      .reduce((total, { encodedBodySize }) => total + encodedBodySize, 0)`);
    expect(scripts).toBeGreaterThan(10_000);
    expect(scripts).toBeLessThan(150_000);
    const requests = await demo.page.evaluate<string[]>(
      `performance.getEntriesByType('resource').map(({ name }) => name)`,
    );
    expect(requests.length, requests.join('\n')).toBeLessThan(16);
  });
});
