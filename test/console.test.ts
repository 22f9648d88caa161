/** The console in a real browser: its numbers are those of the API, and every selection is in the URL. */
import { expect, test } from 'vitest';
import { call, type Distribution, sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, HOUR_MS, signIn } from './console-fixtures.ts';

describeDemo('numbers', (demo) => {
  test('/ redirects to the sign-in page, and signing out ends the session', async () => {
    await demo.page.goto('/');
    expect(new URL(demo.page.url()).pathname).toBe('/console/');
    await signIn(demo.page, { ...demo.account, password: 'wrong' });
    await demo.page.getByText('Wrong user, domain or password.').waitFor();
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

  test('the key figures and the bars equal the responses of the API', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const timeline = await demo.api.timeline(`${FIXED}&timezone=%2B00:00`);
    const distribution = await demo.api.distribution(FIXED);
    expect(await demo.number('requests')).toBe(sum(timeline.requests));
    expect(await demo.number('attacks')).toBe(sum(timeline.attacks));
    expect(await demo.categories()).toEqual(distribution);
    expect(Object.keys(await demo.categories())).toHaveLength(13);
    const share = (sum(timeline.attacks) / sum(timeline.requests)) * 100;
    expect(await demo.figure('share')).toBe(`${share.toFixed(1)}%`);
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
    const change = `${percent < 0 ? '−' : '+'}${Math.abs(percent).toFixed(1)}%`;
    expect(await demo.page.locator('.figure.requests .difference').textContent()).toContain(change);
  });

  test('the top lists equal the responses of the API; rows filter, copy and link', async () => {
    await demo.page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await demo.enter(`/console/?${FIXED}&category=sqli`);
    const rows = (panel: string) => demo.page.locator(`.top-list.${panel} tbody tr`);
    for (const [panel, path] of [
      ['sources', 'ip'],
      ['urls', 'url'],
      ['rules', 'rule'],
      ['countries', 'country'],
    ] as const) {
      const list = await demo.api.getJson<{
        attacks: number;
        items: { key: string; host?: string; num: number }[];
      }>(`waf/overviews/attack/${path}?${FIXED}&top=10&attacks=sqli`);
      expect(list.items.length).toBeGreaterThan(0);
      const shown = await rows(panel).evaluateAll((all) =>
        all.map((row) => [
          row.querySelector('.cut')?.getAttribute('title'),
          row.querySelector('.number')?.textContent,
        ]),
      );
      expect(shown).toEqual(
        list.items.map(({ key, host = '', num }) => [`${host}${key}`, num.toLocaleString('en')]),
      );
      const coverage = await demo.page.locator(`.top-list.${panel} .hint`).textContent();
      expect(coverage).toContain(`${list.attacks.toLocaleString('en')} attacks (SQL injection), `);
    }
    const rule = demo.page.locator('.top-list.rules').getByRole('link', { name: '942100' });
    expect(await rule.getAttribute('href')).toMatch(/^https:\/\/[^?]+-942-[^?]+#:~:text=id%3A942100$/);
    expect(await rule.getAttribute('rel')).toBe('noopener noreferrer');
    const host = rows('urls').first().locator('.link');
    const name = (await host.textContent()) ?? '';
    const copied = rows('urls')
      .first()
      .getByRole('button', { name: `Copy ${name}/` });
    await copied.focus();
    await demo.page.keyboard.press('Enter');
    await rows('urls').first().getByText('Copied').waitFor();
    const title = await rows('urls').first().locator('.cut').getAttribute('title');
    expect(await demo.page.evaluate('navigator.clipboard.readText()')).toBe(title);
    const lines = (await demo.downloaded('.top-list.urls', 'CSV')).toString().split('\r\n');
    expect(lines[0]).toBe('host,url,attacks,error');
    expect(lines[1]).toContain(`${name},/`);
    await host.click();
    await expect
      .poll(() => new URL(demo.page.url()).searchParams.get('host'))
      .toBe((await demo.api.hostIds()).get(name));
  });

  test('a refused top list says why, and the others are shown', async () => {
    const json = { error_code: 'WAF.1025', error_msg: 'the range has too much data' };
    await demo.page.route(/overviews\/attack\/url/, (route) => route.fulfill({ status: 400, json }));
    await demo.enter(`/console/?${FIXED}`);
    const list = (name: string) => demo.page.locator(`.top-list.${name}`);
    expect(await list('urls').locator('.hint').innerText()).toBe('No list: the range has too much data');
    expect(await list('urls').locator('tbody tr').count()).toBe(0);
    for (const name of ['sources', 'rules', 'countries'])
      expect(await list(name).locator('tbody tr').count()).toBeGreaterThan(0);
    expect(await demo.categories()).toEqual(await demo.api.distribution(FIXED));
  });

  test('the timeline table adds up to the total of the API', async () => {
    await demo.enter(`/console/?${FIXED}`);
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

  test('the pages of hosts and sources show the numbers of the API', async () => {
    await demo.enter(`/console/?${FIXED}`);
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
    await demo.enter('/console/?live=off');
    const response = await demo.page.reload();
    await demo.loaded();
    const policy = response?.headers()['content-security-policy'] ?? '';
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

describeDemo('selection', (demo) => {
  test('every preset queries its range, and is in the URL', async () => {
    await demo.enter('/console/?live=off');
    const midnight = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    for (const [name, start, end] of [
      ['Last hour', -HOUR_MS, 0],
      ['Last 24 hours', -DAY_MS, 0],
      ['Today', midnight, 0],
      ['Yesterday', midnight - DAY_MS, midnight],
      ['Last 3 days', midnight - 2 * DAY_MS, 0],
      ['Last 7 days', midnight - 6 * DAY_MS, 0],
      ['Last 30 days', midnight - 29 * DAY_MS, 0],
    ] as const) {
      const requested = demo.page.waitForRequest(/event\/timeline/);
      await demo.page.getByTitle(name, { exact: true }).click();
      const query = new URL((await requested).url()).searchParams;
      await demo.loaded();
      const now = Date.now();
      const near = (given: string | null, wanted: number) =>
        expect(Math.abs(Number(given) - (wanted <= 0 ? now + wanted : wanted))).toBeLessThan(60_000);
      near(query.get('from'), start);
      near(query.get('to'), end);
      expect(await demo.page.getByTitle(name, { exact: true }).getAttribute('aria-pressed')).toBe('true');
    }
    expect(demo.page.url()).toContain('range=30days');
  });

  test('a custom range is in the selected time zone, to the minute', async () => {
    await demo.enter('/console/?tz=%2B05:45');
    await demo.page.getByRole('button', { name: 'Custom range' }).click();
    const local = (time: number) => new Date(time + 5.75 * HOUR_MS).toISOString().slice(0, 16);
    await demo.page.getByLabel('From').fill(local(FROM + 60_000));
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM + 61 * 60_000));
    await demo.page.getByRole('button', { name: 'Apply', exact: true }).click();
    await demo.loaded();
    expect(demo.page.url()).toContain(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    const { requests } = await demo.api.timeline(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    expect(await demo.number('requests')).toBe(sum(requests));
    await demo.page.getByRole('button', { name: 'Custom range' }).click();
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM));
    await demo.page.getByRole('button', { name: 'Apply', exact: true }).click();
    await demo.page.getByText('The start must be before the end.').waitFor();
  });

  test('days begin at midnight in the selected time zone', async () => {
    await demo.enter('/console/?range=yesterday');
    const { requests } = await demo.api.timeline('recent=yesterday&timezone=%2B00:00');
    expect(await demo.number('requests')).toBe(sum(requests));
    await demo.page.getByLabel('Time zone').selectOption('+14:00');
    await expect.poll(() => demo.page.url()).toContain('tz=%2B14%3A00');
    await demo.loaded();
    const yesterday = await demo.api.timeline('recent=yesterday&timezone=%2B14:00');
    await expect.poll(() => demo.number('requests')).toBe(sum(yesterday.requests));
  });

  test('hosts are found by part of their name, and the numbers are those of the selected hosts', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const ids = await demo.api.hostIds();
    await demo.page.getByRole('button', { name: 'Hosts: All hosts' }).click();
    await demo.page.getByLabel('Find a host').fill('SHOP');
    await demo.page.getByLabel('shop.example.com').check();
    await demo.page.getByLabel('Find a host').fill('api');
    await demo.page.getByLabel('api.example.com').check();
    await demo.loaded();
    const chosen = [ids.get('shop.example.com'), ids.get('api.example.com')];
    const hosts = chosen.map((id) => `hosts=${id}`).join('&');
    const { requests } = await demo.api.timeline(`${FIXED}&${hosts}`);
    await expect.poll(() => demo.number('requests')).toBe(sum(requests));
    expect(new URL(demo.page.url()).searchParams.getAll('host')).toEqual(chosen);
    expect(await demo.categories()).toEqual(await demo.api.distribution(`${FIXED}&${hosts}`));
    await demo.page.getByRole('button', { name: 'All hosts', exact: true }).click();
    const all = await demo.api.timeline(FIXED);
    await expect.poll(() => demo.number('requests')).toBe(sum(all.requests));
  });

  test('a view survives a reload', async () => {
    const ids = await demo.api.hostIds();
    const path = `/console/?${FIXED}&tz=-03:30&host=${ids.get('www.example.com')}&hide=attacks`;
    await demo.enter(path);
    const requests = await demo.number('requests');
    const shown = demo.page.url();
    await demo.page.reload();
    await demo.loaded();
    expect(demo.page.url()).toBe(shown);
    expect(await demo.number('requests')).toBe(requests);
    expect(await demo.page.getByLabel('Time zone').inputValue()).toBe('-03:30');
    await demo.page.getByRole('button', { name: 'Hosts: www.example.com' }).waitFor();
    expect(await demo.page.locator('button.key.attacks').getAttribute('aria-pressed')).toBe('false');
  });

  test('dragging over the timeline zooms in, and the back button zooms out', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const whole = await demo.number('requests');
    const plot = await demo.page.locator('.u-over').boundingBox();
    if (plot === null) throw new Error('nothing is drawn');
    const y = plot.y + plot.height / 2;
    await demo.page.mouse.move(plot.x + plot.width * 0.5, y);
    await demo.page.mouse.down();
    await demo.page.mouse.move(plot.x + plot.width * 0.6, y, { steps: 4 });
    await demo.page.mouse.up();
    await expect.poll(() => demo.page.url()).not.toContain(FIXED);
    const query = new URL(demo.page.url()).searchParams;
    const zoomed = { from: Number(query.get('from')), to: Number(query.get('to')) };
    expect(zoomed.from).toBeGreaterThan(FROM + 0.45 * DAY_MS);
    expect(zoomed.to).toBeLessThan(FROM + 0.65 * DAY_MS);
    const { requests } = await demo.api.timeline(`from=${zoomed.from}&to=${zoomed.to}`);
    await expect.poll(() => demo.number('requests')).toBe(sum(requests));
    await demo.page.goBack();
    await expect.poll(() => demo.number('requests')).toBe(whole);
    expect(demo.page.url()).toContain(FIXED);
  });

  test('pointer and arrow keys show the exact values of a point', async () => {
    await demo.enter(`/console/?from=${FROM}&to=${FROM + HOUR_MS}`);
    const { requests, attacks } = await demo.api.timeline(`from=${FROM}&to=${FROM + HOUR_MS}`);
    const plot = demo.page.locator('.u-over');
    const box = await plot.boundingBox();
    if (box === null) throw new Error('nothing is drawn');
    await plot.hover({ position: { x: (box.width * 10.5) / 60, y: 20 } });
    const tooltip = demo.page.locator('.tooltip');
    await expect.poll(() => tooltip.textContent()).toContain('00:10 – 00:11');
    expect(await tooltip.locator('.requests b').textContent()).toBe(String(requests[10]?.num));
    expect(await tooltip.locator('.attacks b').textContent()).toBe(String(attacks[10]?.num));
    await demo.page.locator('.chart').focus();
    await demo.page.keyboard.press('ArrowRight');
    await expect.poll(() => tooltip.textContent()).toContain('00:11 – 00:12');
  });

  test('a hidden series is not drawn, and is in the URL', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const image = () =>
      demo.page
        .locator('.chart canvas')
        .evaluate((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL());
    const both = await image();
    await demo.page.locator('button.key.requests').click();
    await expect.poll(image).not.toBe(both);
    expect(demo.page.url()).toContain('hide=requests');
    await demo.page.locator('button.key.requests').click();
    await expect.poll(image).toBe(both);
  });

  test('live mode refreshes until it is paused', async () => {
    await demo.page.clock.install();
    await demo.enter('/console/?range=1hour');
    const refreshed = demo.page.waitForRequest(/event\/timeline/, { timeout: 10_000 });
    await demo.page.clock.fastForward(5_000);
    await refreshed;
    await demo.page.getByRole('button', { name: 'Live' }).click();
    expect(demo.page.url()).toContain('live=off');
    await demo.loaded();
    expect(await demo.page.getByRole('button', { name: 'Paused' }).getAttribute('aria-pressed')).toBe(
      'false',
    );
    const paused = demo.page.waitForRequest(/event\/timeline/, { timeout: 1_000 });
    await demo.page.clock.fastForward(60_000);
    await expect(paused).rejects.toThrow('Timeout');
  });

  test('the curl command sends the same query', async () => {
    const ids = await demo.api.hostIds();
    await demo.enter(`/console/?${FIXED}&tz=%2B02:00&host=${ids.get('www.example.com')}`);
    await demo.page
      .context()
      .grantPermissions(['clipboard-read', 'clipboard-write'], { origin: demo.address });
    for (const [panel, path] of [
      ['.timeline', 'timeline'],
      ['.distribution', 'attack/type'],
    ] as const) {
      await demo.page.locator(`${panel} button`, { hasText: 'curl' }).click();
      await demo.page.locator(`${panel} button`, { hasText: 'Copy' }).click();
      await demo.page.locator(`${panel} button`, { hasText: 'Copied' }).waitFor();
      const command = await demo.page.evaluate<string>('navigator.clipboard.readText()');
      expect(command).toContain(
        `curl -H "X-Auth-Token: $TOKEN" '${demo.address}/v1/${demo.api.project}/waf/event/${path}?`,
      );
      const url = new URL(/'(http[^']+)'/.exec(command)?.[1] ?? '');
      const response = await demo.api.getJson<Distribution | { requests: { time: number; num: number }[] }>(
        `waf/event/${path}${url.search}`,
      );
      const total =
        'requests' in response && Array.isArray(response.requests)
          ? sum(response.requests)
          : sum(response as Distribution);
      expect(total).toBe(await demo.number(path === 'timeline' ? 'requests' : 'attacks'));
    }
  });

  test('CSV has every point of the API, and PNG is an image', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const csv = await demo.downloaded('.timeline', 'CSV');
    const { requests, attacks } = await demo.api.timeline(FIXED);
    const lines = csv.toString().trimEnd().split('\r\n');
    expect(lines).toHaveLength(requests.length + 1);
    expect(lines[0]).toBe('from,to,requests,attacks');
    const stamp = (time: number) => new Date(time).toISOString();
    expect(lines[1]).toBe(`${stamp(FROM)},${stamp(FROM + 60_000)},${requests[0]?.num},${attacks[0]?.num}`);
    const types = (await demo.downloaded('.distribution', 'CSV')).toString();
    expect(types).toContain(`sqli,SQL injection,${(await demo.api.distribution(FIXED)).sqli}\r\n`);
    const png = await demo.downloaded('.timeline', 'PNG');
    expect(png.subarray(1, 4).toString()).toBe('PNG');
    expect(png.length).toBeGreaterThan(10_000);
  });
});
