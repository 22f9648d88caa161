/** The console in a real browser: its numbers are those of the API, and every selection is in the URL. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Locator, Page, Request } from 'playwright-core';
import { expect, onTestFinished, test } from 'vitest';
import { call, type Distribution, sum } from './api.ts';
import {
  DAY_MS,
  describeDemo,
  describeService,
  FIXED,
  FROM,
  HOUR_MS,
  numberIn,
  signIn,
} from './console-fixtures.ts';
import { timezoneText, zoneAtNoon } from './oracle.ts';
import { PROGRAM } from './process.ts';

const { offsetMinutes, midnight } = zoneAtNoon();
const ZONE = `tz=${encodeURIComponent(timezoneText(offsetMinutes))}`;

/** Where a chart is. It is drawn again when its size changes: in between, it is nowhere. */
async function boxOf(chart: Locator) {
  for (;;) {
    const box = await chart.boundingBox();
    if (box !== null) return box;
  }
}

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
    expect(await demo.figure('rate')).toBe(`${share.toFixed(1)}%`);
    const hosts = await Promise.all(
      [...(await demo.api.hostIds())].map(async ([hostname, id]) => {
        const { requests } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
        return { hostname, requests: sum(requests) };
      }),
    );
    const [busiest] = hosts.toSorted((a, b) => b.requests - a.requests);
    expect(await demo.figure('busiest')).toBe(busiest?.hostname);
    const { items: actions } = await demo.api.getJson<{ items: { key: string; num: number }[] }>(
      `waf/overviews/attack/action-types?${FIXED}`,
    );
    const blocked = actions.find(({ key }) => key === 'block')?.num ?? 0;
    expect(await demo.figure('blocked')).toBe(`${((blocked / sum(timeline.attacks)) * 100).toFixed(1)}%`);
    const { qps } = await demo.api.getJson<{ qps: number }>(`waf/event/request/peak?${FIXED}`);
    expect(await demo.number('peak')).toBe(qps);
    const before = await demo.api.timeline(`from=${FROM - DAY_MS}&to=${FROM}`);
    const percent = (sum(timeline.requests) / sum(before.requests) - 1) * 100;
    const change = `${percent < 0 ? '−' : '+'}${Math.abs(percent).toFixed(1)}%`;
    expect(await demo.page.locator('.figure.requests .difference').textContent()).toContain(change);
  });

  test('the top lists equal the responses of the API', async () => {
    await demo.enter(`/console/?${FIXED}&category=sqli`);
    for (const [panel, path] of [
      ['sources', 'ip'],
      ['urls', 'url'],
      ['rules', 'rule'],
      ['countries', 'country'],
    ] as const) {
      const list = await demo.api.getJson<{ attacks: number; items: { key: string; num: number }[] }>(
        `waf/overviews/attack/${path}?${FIXED}&top=8&attacks=sqli`,
      );
      expect(list.items.length).toBeGreaterThan(0);
      const shown = await demo.page
        .locator(`.top-list.${panel} tbody tr`)
        .evaluateAll((all) =>
          all.map((row) => [row.getAttribute('data-key'), row.querySelector('.number')?.textContent]),
        );
      expect(shown).toEqual(list.items.map(({ key, num }) => [key, num.toLocaleString('en')]));
      const coverage = await demo.page.locator(`.top-list.${panel} .panel-body .hint`).textContent();
      expect(coverage).toContain(`${list.attacks.toLocaleString('en')} attacks, `);
    }
    const host = demo.page.locator('.top-list.urls tbody tr').first().locator('.link');
    const name = (await host.textContent()) ?? '';
    const { content } = await demo.downloaded('.top-list.urls', 'CSV');
    const lines = content.toString().split('\r\n');
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
    expect(await list('urls').locator('.panel-note').innerText()).toBe(
      'Not updated. The range has too much data.',
    );
    expect(await list('urls').locator('tbody tr').count()).toBe(0);
    for (const name of ['sources', 'rules', 'countries'])
      expect(await list(name).locator('tbody tr').count()).toBeGreaterThan(0);
    expect(await demo.categories()).toEqual(await demo.api.distribution(FIXED));
  });

  test('a top list of fewer hours says which, and why', async () => {
    const shorten = (path: RegExp, change: object) =>
      demo.page.route(path, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...(await response.json()), ...change } });
      });
    const from = FROM + 20 * HOUR_MS;
    await shorten(/overviews\/attack\/url/, { from, shortened: true, total: 520, distinct_is: 'minimum' });
    await shorten(/overviews\/attack\/ip/, { from });
    await demo.enter(`/console/?${FIXED}`);
    const text = (name: string, part: string) =>
      demo.page.locator(`.top-list.${name} ${part} .hint`).innerText();
    expect(await text('urls', '.panel-body')).toMatch(
      /attacks, 520 or more URLs; earlier hours are too large for one list/,
    );
    expect(await text('sources', '.panel-body')).toMatch(/ sources; earlier hours are not kept/);
    for (const name of ['urls', 'sources']) expect(await text(name, 'header')).toMatch(/^since .+, 20:00$/);
    expect(await text('rules', '.panel-body')).not.toContain('earlier hours');
    expect(await demo.page.locator('.top-list.rules header .hint').count()).toBe(0);
  });

  test('a list of more attacks than the headline says so in its title', async () => {
    const [from, to] = [FROM + HOUR_MS / 2, FROM + 1.5 * HOUR_MS];
    const hours = { from: FROM, to: FROM + 2 * HOUR_MS };
    await demo.page.route(/overviews\/attack\/ip/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), ...hours } });
    });
    await demo.enter(`/console/?from=${from}&to=${to}`);
    expect(await demo.page.locator('.top-list.urls header .hint').count()).toBe(0);
    const title = demo.page.locator('.top-list.sources header .hint');
    expect(await title.innerText()).toBe('whole hours');
    expect(await title.getAttribute('title')).toMatch(/, 00:00 – 02:00$/);
  });

  test('the most attacked hosts and the share of blocked attacks follow the category filter', async () => {
    await demo.enter(`/console/?${FIXED}&category=sqli`);
    const attacks = await demo.number('attacks');
    const { sqli } = await demo.api.distribution(FIXED);
    expect(attacks).toBe(sqli);
    const counts = await demo.page.locator('.top-hosts tbody td:nth-of-type(1)').allTextContents();
    expect(counts.reduce((total, text) => total + numberIn(text), 0)).toBe(sqli);
    const shown = await demo.page.locator('.figure.blocked .value').getAttribute('title');
    const [blocked = 0, detected = 0] = (shown ?? '').match(/\d[\d,]*/g)?.map(numberIn) ?? [];
    expect(blocked + detected).toBe(sqli);
  });

  test('a panel whose query fails says so in one line, and is loaded again; the others have data', async () => {
    const json = { error_code: 'WAF.5001', error_msg: 'the service is overloaded: the query waited 500 ms' };
    let isOverloaded = true;
    // First the main query, then the hosts.
    let isRefused = (byHost: boolean) => !byHost;
    await demo.page.route(/\/figures$/, (route) => {
      const { by_host } = route.request().postDataJSON() as { by_host: boolean };
      return isOverloaded && isRefused(by_host) ? route.fulfill({ status: 503, json }) : route.continue();
    });
    await demo.page.clock.install();
    await demo.enter(`/console/?${FIXED}&live=off`);
    const text = 'Not updated. The service is overloaded: the query waited 500 ms. Trying again.';
    const note = (panel: string) => demo.page.locator(`${panel} .panel-note`);
    expect(await note('.timeline').innerText()).toBe(text);
    expect((await note('.timeline').boundingBox())?.height).toBeLessThan(40);
    expect(await demo.page.locator('.failure').count()).toBe(0);
    expect(await demo.figure('requests')).toBe('–');
    expect(await demo.page.locator('.top-hosts tbody tr').count()).toBeGreaterThan(3);
    expect(await demo.page.locator('.top-list.sources tbody tr').count()).toBeGreaterThan(3);
    isOverloaded = false;
    await demo.page.clock.runFor(5_000);
    const { requests } = await demo.api.timeline(FIXED);
    await expect.poll(() => demo.figure('requests')).toBe(sum(requests).toLocaleString('en'));
    await expect.poll(() => note('.timeline').count()).toBe(0);
    isRefused = (byHost) => byHost;
    isOverloaded = true;
    await demo.page.reload();
    await demo.loaded();
    expect(await note('.top-hosts').innerText()).toBe(text);
    expect(await demo.figure('busiest')).toBe('–');
    expect(await demo.page.locator('.content .skeleton').count()).toBe(0);
    expect(await demo.number('requests')).toBe(sum(requests));
  });

  test('a failed refresh keeps the old data, in grey, with a note', async () => {
    await demo.page.clock.install();
    await demo.enter('/console/?range=1hour');
    const before = await demo.number('requests');
    const json = { error_code: 'WAF.5001', error_msg: 'the service is overloaded' };
    await demo.page.route(/\/figures$/, (route) => route.fulfill({ status: 503, json }));
    await demo.page.clock.runFor(5_000);
    await demo.page.locator('.timeline .panel-note').waitFor();
    expect(await demo.number('requests')).toBe(before);
    expect(await demo.page.locator('.figures.stale, .timeline .panel-body.stale').count()).toBe(2);
    await demo.page.unroute(/\/figures$/);
    await demo.page.clock.runFor(5_000);
    await expect.poll(() => demo.page.locator('.stale').count()).toBe(0);
  });

  test('the timeline table adds up to the total of the API', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.getByRole('button', { name: 'Table' }).click();
    const rows = demo.page.getByRole('region', { name: 'Timeline as a table' }).locator('tbody tr');
    await rows.first().waitFor();
    const cells = await rows.evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
    );
    const { requests } = await demo.api.timeline(FIXED);
    const counted = cells.map(([, n = '']) => Number(n.replaceAll(',', '')));
    expect(counted.reduce((total, n) => total + n, 0)).toBe(sum(requests));
    expect(cells[0]?.[0]).toMatch(/, 00:00 – 00:\d\d$/);
  });

  test('the pages of hosts and sources show the numbers of the API', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.getByRole('link', { name: 'Hosts', exact: true }).click();
    const row = demo.page
      .getByRole('region', { name: 'Hosts' })
      .getByRole('row', { name: /www\.example\.com/ });
    await row.waitFor();
    const id = (await demo.api.hostIds()).get('www.example.com');
    const { requests, attacks } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
    const cells = await row.locator('td.number').allTextContents();
    expect(cells.slice(0, 2).map((text) => Number(text.replaceAll(',', '')))).toEqual([
      sum(requests),
      sum(attacks),
    ]);
    await demo.page.getByRole('columnheader', { name: 'Host' }).getByText('Host').click();
    await expect.poll(() => demo.page.locator('tbody tr').first().textContent()).toContain('api.example.com');
    await demo.page.getByLabel('Find a host').fill('legacy');
    await expect.poll(() => demo.page.locator('tbody tr').count()).toBe(1);
    await demo.page.getByRole('link', { name: 'Sources' }).click();
    await demo.page.getByText('sample traffic').waitFor();
    await demo.page.getByText('Reporting').waitFor();
  });

  test('the table of sources hides no row of a screen of 1280 by 800', async () => {
    await demo.page.setViewportSize({ width: 1280, height: 800 });
    await demo.page.route(/\/sources$/, async (route) => {
      const response = await route.fetch();
      const { now, items } = (await response.json()) as { now: number; items: object[] };
      const many = Array.from({ length: 10 }, (_, i) => ({ ...items[0], id: `id-${i}`, name: `edge-${i}` }));
      await route.fulfill({ response, json: { now, items: many } });
    });
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.getByRole('link', { name: 'Sources' }).click();
    const table = demo.page.getByRole('region', { name: 'Sources' });
    await expect.poll(() => table.locator('tbody tr').count()).toBe(10);
    expect(await table.evaluate((one) => one.scrollHeight - one.clientHeight)).toBe(0);
    expect(await table.getByTitle('edge-9').count()).toBe(1);
  });

  test('the script of the build is at most 100 KB with gzip', () => {
    const assets = fileURLToPath(new URL('../packages/server/dist/web/assets/', import.meta.url));
    const scripts = readdirSync(assets).filter((name) => name.endsWith('.js.gz'));
    expect(scripts).toHaveLength(1);
    expect(statSync(join(assets, scripts[0] ?? '')).size).toBeLessThan(100 * 1_024);
  });

  test('the overview has the numbers of every host, sorts, searches and leads to the dashboard', async () => {
    await demo.enter(`/console/overview?${FIXED}`);
    const tiles = demo.page.getByRole('list', { name: 'Hosts' }).locator('.tile');
    await expect.poll(() => tiles.count()).toBe(6);
    const hosts = await Promise.all(
      [...(await demo.api.hostIds())].map(async ([hostname, id]) => {
        const { requests, attacks } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
        return { hostname, requests: sum(requests), attacks: sum(attacks) };
      }),
    );
    const ordered = hosts.toSorted((a, b) => b.attacks - a.attacks);
    const titles = await tiles.evaluateAll((all) => all.map((one) => one.getAttribute('title') ?? ''));
    for (const [i, { hostname, requests, attacks }] of ordered.entries()) {
      const [wanted, numbers] = [requests, attacks].map((n) => n.toLocaleString('en'));
      expect(titles[i]).toContain(`${hostname}: ${wanted} requests, ${numbers} attacks`);
    }
    await demo.page.getByLabel('Sort by').selectOption('name');
    await expect.poll(() => tiles.first().textContent()).toContain('api.example.com');
    await demo.page.getByLabel('Find a project or host').fill('LEGACY');
    await expect.poll(() => tiles.count()).toBe(1);
    await tiles.getByText('legacy.example.com').click();
    await demo.page.getByRole('button', { name: 'Host: legacy.example.com. Remove the filter' }).waitFor();
    const legacy = hosts.find(({ hostname }) => hostname === 'legacy.example.com');
    await expect.poll(() => demo.number('requests')).toBe(legacy?.requests);
  });

  test('the overview compares with the same hours of earlier days', async () => {
    const requested = demo.page.waitForRequest(/\/figures$/);
    await demo.enter(`/console/overview?range=today&live=off&${ZONE}`);
    const { edges } = (await requested).postDataJSON() as { edges: number[] };
    expect(edges.slice(0, 2)).toEqual(edges.slice(2).map((time) => time - DAY_MS));
    expect(edges[2]).toBe(midnight);
  });

  test('the overview draws new lines for another range', async () => {
    await demo.enter(`/console/overview?${FIXED}`);
    const line = demo.page.getByRole('list', { name: 'Projects' }).locator('.sparkline .requests');
    const day = await line.getAttribute('d');
    await demo.page.getByTitle('Last 7 days').click();
    await expect.poll(() => line.getAttribute('d')).not.toBe(day);
  });

  test('? lists the shortcuts, which lead to pages and shift the period', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.keyboard.press('?');
    await demo.page.getByText('Previous and next period').waitFor();
    await demo.page.getByText('Close').click();
    await demo.page.keyboard.press('[');
    await expect.poll(() => demo.page.url()).toContain(`from=${FROM - DAY_MS}&to=${FROM}`);
    await demo.page.keyboard.press('g');
    await demo.page.keyboard.press('o');
    await demo.page.getByRole('heading', { name: 'Overview' }).waitFor();
  });

  test('it loads with ten requests, four at a time, in less than 100 KB of script, under a strict policy', async () => {
    await demo.enter('/console/?live=off');
    const sent: string[] = [];
    const running = new Set<Request>();
    let parallel = 0;
    demo.page.on('request', (request) => {
      sent.push(request.url());
      running.add(request);
      parallel = Math.max(parallel, running.size);
    });
    demo.page.on('requestfinished', (request) => running.delete(request));
    const response = await demo.page.reload();
    await demo.loaded();
    expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(10);
    expect(parallel).toBeLessThanOrEqual(4);
    const policy = response?.headers()['content-security-policy'] ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).not.toContain('unsafe');
    const scripts = await demo.page.evaluate<number>(`performance.getEntriesByType('resource')
      .filter(({ name }) => name.endsWith('.js'))
      .reduce((total, { encodedBodySize }) => total + encodedBodySize, 0)`);
    expect(scripts).toBeGreaterThan(10_000);
    expect(scripts).toBeLessThan(100_000);
  });

  test('24 hours take less than 110 KB to load, and live at most 50 KB a minute', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const session = await demo.page.context().newCDPSession(demo.page);
    await session.send('Network.enable');
    let bytes = 0;
    session.on('Network.loadingFinished', ({ encodedDataLength }) => {
      bytes += encodedDataLength;
    });
    await session.send('Network.setCacheDisabled', { cacheDisabled: true });
    await demo.page.clock.install();
    await demo.page.goto('/console/?range=24hours');
    await demo.loaded();
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThan(110_000);
    bytes = 0;
    let refreshes = 0;
    demo.page.on('requestfinished', (request) => {
      if (request.url().endsWith('/figures')) refreshes++;
    });
    for (let seconds = 0; seconds < 60; seconds += 5) {
      const before = refreshes;
      await demo.page.clock.runFor(5_000);
      await expect.poll(() => refreshes).toBeGreaterThan(before);
    }
    expect(refreshes).toBeGreaterThanOrEqual(12);
    expect(bytes).toBeLessThan(50_000);
  });
});

describeDemo('selection', (demo) => {
  test('every preset queries its range, and is in the URL', async () => {
    await demo.enter(`/console/?range=6hours&live=off&${ZONE}`);
    const weekday = new Date(midnight + offsetMinutes * 60_000).getUTCDay();
    const monday = midnight - ((weekday + 6) % 7) * DAY_MS;
    for (const [name, start, end] of [
      ['Last hour', -HOUR_MS, 0],
      ['Last 6 hours', -6 * HOUR_MS, 0],
      ['Last 24 hours', -DAY_MS, 0],
      ['Last 7 days', -7 * DAY_MS, 0],
      ['Last 30 days', -30 * DAY_MS, 0],
      ['Last 90 days', -90 * DAY_MS, 0],
      ['Today', midnight, 0],
      ['This week', monday, 0],
      ['Last week', monday - 7 * DAY_MS, monday],
      ['Yesterday', midnight - DAY_MS, midnight],
    ] as const) {
      const requested = demo.page.waitForRequest(
        (request) => /figures$/.test(request.url()) && !request.postDataJSON().by_host,
      );
      const before = Date.now();
      if (name === 'Last 6 hours' || name === 'Last 90 days')
        await demo.page.getByRole('button', { name: /^Custom range/ }).click();
      await demo.page
        .getByTitle(new RegExp(`^${name}\\b`))
        .last()
        .click();
      // The previous period is before the range.
      const { edges } = (await requested).postDataJSON() as { edges: number[] };
      await demo.loaded();
      const after = Date.now();
      // Ranges that end now end with a minute: the one before the click, or after the page was loaded.
      const near = (given: number | undefined, wanted: number) => {
        const [first, last] = wanted <= 0 ? [before + wanted, after + wanted] : [wanted, wanted];
        expect(Number(given), name).toBeGreaterThan(first - 70_000);
        expect(Number(given), name).toBeLessThan(last + 70_000);
      };
      near(edges[edges.length / 2], start);
      near(edges.at(-1), end);
    }
    expect(demo.page.url()).toContain('range=yesterday');
    await demo.page.getByRole('button', { name: 'Previous period' }).click();
    const shifted = `from=${midnight - 2 * DAY_MS}&to=${midnight - DAY_MS}`;
    await expect.poll(() => demo.page.url()).toContain(shifted);
    await demo.page.getByRole('button', { name: 'Next period' }).click();
    await expect.poll(() => demo.page.url()).toContain(`from=${midnight - DAY_MS}&to=${midnight}`);
  });

  test('a range without events names its year and draws no share of blocked attacks', async () => {
    await demo.enter(`/console/?from=${Date.UTC(2001, 8, 9, 1)}&to=${Date.UTC(2001, 8, 9, 2)}`);
    await demo.page.getByRole('button', { name: 'Custom range: 9 Sep 2001, 01:00 – 02:00' }).waitFor();
    await demo.page.getByText('Try a longer range.', { exact: true }).waitFor();
    expect(await demo.page.locator('.figure.blocked .change').textContent()).toBe('no attacks');
  });

  test('the threshold of tuning is in the URL and in the query; one that is not valid is not used', async () => {
    await demo.enter('/console/?live=off');
    await demo.page.goto('/console/tuning?live=off&threshold=7');
    const field = demo.page.getByLabel('Threshold');
    await expect.poll(() => field.inputValue()).toBe('7');
    const [query] = await Promise.all([
      demo.page.waitForRequest(/waf\/tuning\?.*threshold=12\b/),
      field.fill('12').then(() => field.press('Enter')),
    ]);
    expect((await query.response())?.status()).toBe(200);
    await expect.poll(() => demo.page.url()).toContain('threshold=12');
    await field.fill('0');
    await field.press('Enter');
    expect(demo.page.url()).toContain('threshold=12');
    expect(await field.evaluate((input) => input.matches(':invalid'))).toBe(true);
  });

  test('a click on a label of the custom range keeps it open', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.getByRole('button', { name: 'Custom range' }).click();
    await demo.page.getByText('From', { exact: true }).click();
    await demo.page.getByText('The end is not included.').click();
    await demo.page.getByText('Apply').click();
    await expect.poll(() => demo.page.url()).toContain(FIXED);
  });

  test('a custom range is in the selected time zone, to the minute', async () => {
    await demo.enter('/console/?tz=%2B05:45');
    await demo.page.getByRole('button', { name: 'Custom range' }).click();
    const local = (time: number) => new Date(time + 5.75 * HOUR_MS).toISOString().slice(0, 16);
    await demo.page.getByLabel('From').fill(local(FROM + 60_000));
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM + 61 * 60_000));
    await demo.page.getByRole('button', { name: 'Apply', exact: true }).click();
    await expect.poll(() => demo.page.url()).toContain(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    const { requests } = await demo.api.timeline(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    await expect.poll(() => demo.number('requests')).toBe(sum(requests));
    await demo.page.getByRole('button', { name: 'Custom range' }).click();
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM));
    await demo.page.getByRole('button', { name: 'Apply', exact: true }).click();
    await demo.page.getByText('The start must be before the end.').waitFor();
  });

  test('days begin at midnight in the selected time zone', async () => {
    await demo.enter('/console/?range=yesterday');
    // Polls both numbers, because midnight may pass between them.
    const differenceFromApi = async (timezone: string) => {
      const { requests } = await demo.api.timeline(`recent=yesterday&timezone=${timezone}`);
      return (await demo.number('requests')) - sum(requests);
    };
    await expect.poll(() => differenceFromApi('%2B00:00')).toBe(0);
    await demo.page.getByLabel('Time zone').selectOption('+14:00');
    await expect.poll(() => demo.page.url()).toContain('tz=%2B14%3A00');
    await demo.loaded();
    await expect.poll(() => differenceFromApi('%2B14:00')).toBe(0);
  });

  test('a long name of a project keeps the header in one line', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const header = demo.page.locator('header.top');
    const height = await header.evaluate((one) => one.clientHeight);
    await demo.page.route('**/console/api/session', async (route) => {
      const response = await route.fetch();
      const session = (await response.json()) as { projects: { name: string }[] };
      const projects = session.projects.map((project) => ({ ...project, name: 'production '.repeat(5) }));
      await route.fulfill({ response, json: { ...session, projects } });
    });
    await demo.page.reload();
    await demo.page.getByTitle('production production').waitFor();
    expect(await header.evaluate((one) => one.clientHeight)).toBe(height);
  });

  test('a click on names of hosts selects them, in one step of the history', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const ids = await demo.api.hostIds();
    const whole = await demo.number('requests');
    await demo.page.getByRole('button', { name: 'Hosts: All hosts' }).click();
    await demo.page.getByLabel('Find a host').fill('SHOP');
    const list = demo.page.locator('.host-list');
    await expect.poll(() => list.locator('label').count()).toBe(1);
    await list.getByText('shop.example.com').click();
    await demo.page.getByLabel('Find a host').fill('api');
    await list.getByText('api.example.com').click();
    await demo.loaded();
    const chosen = [ids.get('shop.example.com'), ids.get('api.example.com')];
    const hosts = chosen.map((id) => `hosts=${id}`).join('&');
    const { requests } = await demo.api.timeline(`${FIXED}&${hosts}`);
    await expect.poll(() => demo.number('requests')).toBe(sum(requests));
    expect(new URL(demo.page.url()).searchParams.getAll('host')).toEqual(chosen);
    expect(await demo.categories()).toEqual(await demo.api.distribution(`${FIXED}&${hosts}`));
    await demo.page.keyboard.press('Escape');
    await demo.page.getByRole('button', { name: 'Host: api.example.com. Remove the filter' }).click();
    await expect.poll(() => new URL(demo.page.url()).searchParams.getAll('host')).toEqual([chosen[0]]);
    await demo.page.goBack();
    await demo.page.goBack();
    await expect.poll(() => demo.number('requests')).toBe(whole);
    expect(new URL(demo.page.url()).searchParams.getAll('host')).toEqual([]);
  });

  test('a view survives a reload', async () => {
    const ids = await demo.api.hostIds();
    const path = `/console/?${FIXED}&tz=-03:30&host=${ids.get('www.example.com')}&by=host&category=-xss`;
    await demo.enter(path);
    const requests = await demo.number('requests');
    const shown = demo.page.url();
    await demo.page.reload();
    await demo.loaded();
    expect(demo.page.url()).toBe(shown);
    expect(await demo.number('requests')).toBe(requests);
    expect(await demo.page.getByLabel('Time zone').inputValue()).toBe('-03:30');
    await demo.page.getByRole('button', { name: 'Hosts: www.example.com' }).waitFor();
    await demo.page
      .getByRole('button', { name: 'Not category: Cross-site scripting. Remove the filter' })
      .waitFor();
    expect(await demo.page.locator('.timeline .legend .key').allTextContents()).toEqual([
      `www.example.com${requests.toLocaleString('en')}`,
    ]);
  });

  test('dragging over the timeline zooms in, and the back button zooms out', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const whole = await demo.number('requests');
    const plot = await boxOf(demo.page.locator('.pane.requests .u-over'));
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

  test('pointer and keys show the exact values of a point, and zoom', async () => {
    const from = FROM + 12 * HOUR_MS;
    await demo.enter(`/console/?from=${from}&to=${from + HOUR_MS}`);
    const { requests, attacks } = await demo.api.timeline(`from=${from}&to=${from + HOUR_MS}`);
    const plot = demo.page.locator('.pane.requests .u-over');
    const box = await boxOf(plot);
    await demo.page.mouse.move(box.x + (box.width * 10.5) / 60, box.y + 20);
    const tooltip = demo.page.locator('.tooltip');
    await expect.poll(() => tooltip.textContent()).toContain('12:10 – 12:11');
    expect(await tooltip.locator('.sum.requests b').textContent()).toBe(String(requests[10]?.num));
    expect(await tooltip.locator('.sum.attacks b').textContent()).toBe(String(attacks[10]?.num));
    await demo.page.locator('.timeline .chart').focus();
    await demo.page.keyboard.press('ArrowRight');
    await expect.poll(() => tooltip.textContent()).toContain('12:11 – 12:12');
    await demo.page.keyboard.press('Shift+ArrowRight');
    await demo.page.keyboard.press('Shift+ArrowRight');
    await expect.poll(() => tooltip.textContent()).toContain('12:11 – 12:14');
    const selected = requests.slice(11, 14).reduce((total, { num }) => total + num, 0);
    expect(await tooltip.locator('.sum.requests b').textContent()).toBe(String(selected));
    await demo.page.keyboard.press('Enter');
    await expect.poll(() => demo.page.url()).toContain(`from=${from + 11 * 60_000}&to=${from + 14 * 60_000}`);
    await expect.poll(() => demo.number('requests')).toBe(selected);
  });

  test('the timeline fits a screen of 1440 by 900, and full screen has all panels without controls', async () => {
    await demo.page.setViewportSize({ width: 1440, height: 900 });
    await demo.enter('/console/?live=off');
    const height = () => demo.page.evaluate<number>('document.documentElement.scrollHeight');
    const bottom = () => demo.page.locator('.timeline').evaluate((one) => one.getBoundingClientRect().bottom);
    await expect.poll(bottom).toBeLessThanOrEqual(900);
    await demo.page.getByRole('button', { name: 'Full screen' }).click();
    await demo.page.getByText(/^updated \d\d:\d\d:\d\d$/).waitFor();
    expect(demo.page.url()).toContain('tv=on');
    expect(await demo.page.getByRole('navigation').count()).toBe(0);
    await expect.poll(height).toBeLessThanOrEqual(900);
    await demo.page.getByText('Exit full screen').click();
    await demo.page.getByRole('navigation').waitFor();
    expect(demo.page.url()).not.toContain('tv=on');
  });

  test('live mode refreshes until it is paused', async () => {
    await demo.page.clock.install();
    await demo.enter('/console/?range=1hour');
    const refreshed = demo.page.waitForRequest(/\/figures$/);
    await demo.page.clock.fastForward(5_000);
    await refreshed;
    await demo.page
      .getByRole('button', { name: 'Live' })
      .getByText(/^updated \d\d:\d\d:\d\d$/)
      .click();
    await expect.poll(() => demo.page.url()).toContain('live=off');
    await demo.loaded();
    expect(await demo.page.getByRole('button', { name: 'Paused' }).getAttribute('aria-pressed')).toBe(
      'false',
    );
    const later: string[] = [];
    demo.page.on('request', (request) => later.push(new URL(request.url()).pathname));
    await demo.page.clock.fastForward(60_000);
    // Requests are reported in order: one of the refresh would be before this one.
    await demo.page.evaluate(`fetch('/console/hosts').then(() => null)`);
    expect(later).toEqual(['/console/hosts']);
  });

  test('without the service, live mode says since when, and recovers', async () => {
    await demo.page.clock.install();
    await demo.enter('/console/?range=1hour');
    const calls = /\/waf\/|figures/;
    await demo.page.route(calls, (route) => route.abort());
    await demo.page.clock.runFor(20_000);
    await demo.page.getByText(/^not updated since \d\d:\d\d:\d\d$/).waitFor();
    expect(await demo.number('requests')).toBeGreaterThan(0);
    // Another range must not show the old numbers.
    await demo.page.getByTitle('Last 7 days').click();
    await demo.page.locator('.timeline .panel-note', { hasText: 'The service is not responding.' }).waitFor();
    expect(await demo.figure('requests')).toBe('–');
    await demo.page.unroute(calls);
    await demo.page.clock.runFor(5_000);
    await expect.poll(() => demo.number('requests')).toBeGreaterThan(0);
  });

  test('full screen says if it never loaded', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.route(/\/waf\/|figures/, (route) => route.abort());
    await demo.page.goto('/console/?tv=on');
    await demo.page.getByText('not loaded; retrying', { exact: true }).waitFor();
  });

  test('queries that an overloaded service refuses are repeated when it says so', async () => {
    const json = { error_code: 'WAF.5001', error_msg: 'the service is overloaded' };
    const sent: boolean[] = [];
    await demo.page.route(/\/figures$/, (route) => {
      sent.push(route.request().postDataJSON().by_host);
      if (sent.length > 2) return route.continue();
      return route.fulfill({ status: 503, headers: { 'Retry-After': '1' }, json });
    });
    await demo.enter(`/console/?${FIXED}&live=off`);
    expect(await demo.number('requests')).toBeGreaterThan(0);
    expect(await demo.page.locator('.panel-note').count()).toBe(0);
    expect(sent).toEqual([false, false, false, true]);
  });

  test('a copied link shows the same numbers in another time zone, and later', async () => {
    const context = await demo.newContext({ timezoneId: 'America/New_York' });
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: demo.address });
    const page = await context.newPage();
    const figure = (of: Page) => of.locator('.figure.requests .value').textContent();
    await page.goto('/console/?range=yesterday');
    await signIn(page, demo.account);
    await page.locator('.content[aria-busy="false"]').waitFor();
    expect(new URL(page.url()).searchParams.get('tz')).toBe('America/New_York');
    await page.getByText('Copy link').click();
    await page.getByText('Copied').waitFor();
    const link = await page.evaluate<string>('navigator.clipboard.readText()');
    const wanted = await figure(page);
    await context.close();
    const query = new URL(link).searchParams;
    expect([...query.keys()].toSorted()).toEqual(['from', 'project', 'to', 'tz']);
    await demo.enter('/console/?range=yesterday');
    expect(new URL(demo.page.url()).searchParams.get('tz')).toBe('UTC');
    await demo.page.goto(link);
    await demo.loaded();
    expect(await figure(demo.page)).toBe(wanted);
    expect(await demo.page.getByLabel('Time zone').inputValue()).toBe('America/New_York');
  });

  test('a link that is not valid says what it ignores', async () => {
    await demo.enter('/console/?range=bogus&from=abc&tz=Europe/Atlantis');
    const notice = demo.page.locator('.notice');
    expect(await notice.textContent()).toBe(
      'This link is not valid: from=abc, range=bogus, tz=Europe/Atlantis. The page shows the default instead.',
    );
    await demo.page.getByTitle('Last 7 days').click();
    await expect.poll(() => notice.count()).toBe(0);
  });

  test('cities come before offsets in the list of time zones, and are found by their name', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const zones = demo.page.getByLabel('Time zone');
    const groups = await zones.locator('optgroup').evaluateAll((all) => all.map((one) => one.label));
    expect(groups.slice(0, 2)).toEqual(['This browser', 'Africa']);
    expect(groups.at(-1)).toBe('Offsets');
    await zones.selectOption('Berlin');
    await expect.poll(() => new URL(demo.page.url()).searchParams.get('tz')).toBe('Europe/Berlin');
  });

  test('nothing is smaller than 24 pixels to click', async () => {
    await demo.page.route(/overviews\/attack\/url/, async (route) => {
      const response = await route.fetch();
      const list = await response.json();
      const items = list.items.map((item: object) => ({ ...item, key: '/', host: '', host_id: null }));
      await route.fulfill({ response, json: { ...list, items: items.slice(0, 1) } });
    });
    await demo.enter(`/console/?${FIXED}`);
    const small = await demo.page.locator('main button, main select, main input').evaluateAll((all) =>
      all
        .map((one) => ({ name: one.outerHTML.slice(0, 100), box: one.getBoundingClientRect() }))
        .filter(({ box }) => box.width > 0 && (box.width < 24 || box.height < 24))
        .map(({ name, box }) => `${name} ${box.width} by ${box.height}`),
    );
    // Bars of categories and hosts are buttons as large as their row.
    expect(small.filter((text) => !text.includes('class="filter'))).toEqual([]);
  });

  test('the commands of the export menu send the same query', async () => {
    const ids = await demo.api.hostIds();
    await demo.enter(`/console/?${FIXED}&tz=%2B02:00&host=${ids.get('www.example.com')}`);
    for (const [panel, path] of [
      ['.timeline', 'timeline'],
      ['.distribution', 'attack/type'],
    ] as const) {
      const command = await demo.copied(panel, 'curl');
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
    const [line = ''] = (await demo.copied('.timeline', 'command line')).split('\n');
    // As a new user does: a profile once, then the copied command.
    const profiles = mkdtempSync(join(tmpdir(), 'wafstat-profiles-'));
    onTestFinished(() => rmSync(profiles, { recursive: true }));
    const env = { ...process.env, XDG_CONFIG_HOME: profiles };
    const connection = ['--url', demo.address, '--project', demo.api.project];
    execFileSync(process.execPath, [PROGRAM, 'configure', ...connection], {
      env: { ...env, WAFSTAT_TOKEN: demo.api.token },
    });
    const output = execFileSync(process.execPath, [PROGRAM, ...line.split(' ').slice(1), '--output', 'csv'], {
      encoding: 'utf8',
      env,
    });
    const rows = output.trim().split(/\r?\n/).slice(1);
    const counted = rows.reduce((total, row) => total + Number(row.split(',')[1]), 0);
    expect(counted).toBe(await demo.number('requests'));
  });

  test('CSV has every point of the API, PNG is an image, and both are named after project and range', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const csv = await demo.downloaded('.timeline', 'CSV');
    const { requests, attacks } = await demo.api.timeline(FIXED);
    const lines = csv.content.toString().trimEnd().split('\r\n');
    expect(lines).toHaveLength(requests.length + 1);
    expect(lines[0]).toMatch(/^from,to,requests,attacks,xss,sqli,/);
    const stamp = (time: number) => new Date(time).toISOString();
    const start = `${stamp(FROM)},${stamp(FROM + 60_000)},${requests[0]?.num},${attacks[0]?.num},`;
    expect(lines[1]?.startsWith(start)).toBe(true);
    await demo.page.goto(`/console/?${FIXED}&category=-sqli`);
    await demo.loaded();
    const { content } = await demo.downloaded('.timeline', 'CSV');
    const [names = [], ...rows] = content
      .toString()
      .trimEnd()
      .split('\r\n')
      .map((line) => line.split(','));
    expect(names).not.toContain('sqli');
    for (const [, , , counted, ...byCategory] of rows)
      expect(Number(counted)).toBe(byCategory.reduce((total, n) => total + Number(n), 0));
    const day = (time: number) => `${stamp(time).slice(0, 10).replaceAll('-', '')}T0000`;
    expect(csv.name).toBe(`default-timeline-${day(FROM)}-${day(FROM + DAY_MS)}.csv`);
    const types = await demo.downloaded('.distribution', 'CSV');
    expect(types.content.toString()).toContain(
      `sqli,SQL injection,${(await demo.api.distribution(FIXED)).sqli}\r\n`,
    );
    const png = await demo.downloaded('.timeline', 'PNG');
    expect(png.name).toMatch(/\.png$/);
    expect(png.content.subarray(1, 4).toString()).toBe('PNG');
    expect(png.content.length).toBeGreaterThan(10_000);
  });
});

describeService('states', (service) => {
  test('without the role reader, the dashboard says what to do; without a role, users can still sign out', async () => {
    const { installation, page, sandbox } = service;
    const { domain, project_id } = installation;
    const add = async (user: string, ...options: string[]) => {
      const { password } = await sandbox.runJson<{ password: string }>('user', 'add', user, ...options);
      return { user, domain, password };
    };
    const sender = await add('sender', '--access', 'both', '--role', 'ingest', '--project', project_id);
    await service.enter('/console/', sender);
    await page.getByText('ask your administrator for the role reader').waitFor();
    await service.signOut();
    await sandbox.run(['project', 'disable', project_id, '--data', sandbox.data]);
    await service.enter('/console/', sender);
    await page.getByText('You have no role in any project.').waitFor();
    await service.signOut();
    // An administrator gets to the page where the project can be enabled.
    await service.enter('/console/');
    await page.getByRole('heading', { name: 'Users and projects' }).waitFor();
  });

  test('the most attacked hosts have their share of all attacks, also of those without a host', async () => {
    const { installation, page, sandbox } = service;
    const time = Date.now() - 60_000;
    const attack = { time, attack: 'sqli' };
    const onA = { ...attack, host: 'a.example' };
    const earlier = [3 * HOUR_MS, 1.5 * HOUR_MS].map((ms) => ({ time: time - ms, host: 'b.example' }));
    await sandbox.ingest(installation.project_id, [
      ...earlier,
      ...[onA, onA, onA],
      { ...attack, host: 'b.example' },
      attack,
    ]);
    await service.enter('/console/?range=1hour');
    const shown = () =>
      page
        .locator('.top-hosts tbody tr')
        .evaluateAll((rows) =>
          rows.map((row) => [...row.querySelectorAll('th, td')].map((cell) => cell.textContent)),
        );
    await expect.poll(shown).toEqual([
      ['a.example', '3', '60.0%'],
      ['b.example', '1', '20.0%'],
      ['No host', '1', '20.0%'],
    ]);
    await expect
      .poll(() => page.locator('.figure.attacks .change').innerText())
      .toBe('None in the previous hour');
    const options = ['--data', sandbox.data, '--project', installation.project_id];
    expect(await sandbox.run(['host', 'delete', 'a.example', '--yes', ...options])).toMatchObject({
      status: 0,
    });
    await page.reload();
    await expect.poll(shown).toEqual([
      ['No host', '4', '80.0%'],
      ['b.example', '1', '20.0%'],
    ]);
  });

  test('time before the first event is hatched, and says so', async () => {
    const { installation, page, sandbox } = service;
    const time = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - 6 * HOUR_MS;
    await sandbox.ingest(installation.project_id, [{ time, host: 'a.example' }]);
    await service.enter('/console/?range=24hours');
    const hatched = page.locator('.no-data');
    await hatched.waitFor();
    const clock = new Date(time).toISOString().slice(11, 16);
    expect(await hatched.innerText()).toMatch(new RegExp(`^No data before \\d+ \\w+, ${clock}$`));
    const [own, plot] = await Promise.all([
      hatched.boundingBox(),
      page.locator('.pane.requests .u-over').boundingBox(),
    ]);
    // 18 of 24 hours, up to one of the current one.
    const share = (own?.width ?? 0) / (plot?.width ?? 1);
    expect(share).toBeGreaterThan(0.69);
    expect(share).toBeLessThan(0.76);
  });

  test('top lists that are not kept any more say for how long they are kept', async () => {
    const { installation, page, sandbox } = service;
    const time = Date.now() - 40 * DAY_MS;
    const event = { time, host: 'a.example', attack: 'sqli', source: '192.0.2.1' };
    await sandbox.ingest(installation.project_id, [event]);
    await service.enter(`/console/?from=${time - DAY_MS}&to=${time + DAY_MS}`);
    await expect
      .poll(() => page.locator('.top-list.sources .hint').innerText())
      .toBe('Top lists are kept for 30 days');
  });

  test('the end of a session is announced', async () => {
    const { page } = service;
    await page.clock.install();
    await service.enter('/console/');
    await page.getByText('has no data yet').waitFor();
    await page.context().clearCookies();
    await page.clock.fastForward(5_000);
    await page.getByText('Your session has ended. Sign in again to continue.').waitFor();
  });

  test('without the service, users stay signed in and see why, and the first steps stay', async () => {
    const { page } = service;
    await page.clock.install();
    await service.enter('/console/');
    await page.getByText('Waiting for the first event...').waitFor();
    await page.route(/\/v1\/|\/console\/api\//, (route) => route.abort());
    await page.getByText('Sign out').click();
    await page.getByText('You are still signed in. The service is not responding.').waitFor();
    await page.clock.fastForward(5_000);
    await page.getByText('or the network is down. Trying again.').waitFor();
    await page.getByText('has no data yet').waitFor();
    await page.locator('nav').getByText('Users and projects').click();
    await expect.poll(() => page.getByText('You are still signed in.').count()).toBe(0);
    await page.unroute(/\/v1\/|\/console\/api\//);
    await service.signOut();
  });

  test('a page that is opened without the service shows why, and opens when the service responds', async () => {
    const { page } = service;
    await service.enter('/console/');
    await page.clock.install();
    await page.route('**/console/api/session', (route) => route.abort(), { times: 1 });
    await page.goto('/console/admin');
    await page.getByText('It may be restarting, or the network is down.').waitFor();
    await page.clock.runFor(5_000);
    await page.getByRole('button', { name: 'New user' }).waitFor();
  });

  test('the overview shows 1,000 hosts in steps', async () => {
    const { installation, page, sandbox } = service;
    const time = Date.now() - 60_000;
    const hosts = Array.from({ length: 1_000 }, (_, i) => `host-${String(i + 1).padStart(4, '0')}.example`);
    await sandbox.ingest(
      installation.project_id,
      hosts.map((host) => ({ time, host })),
    );
    await service.enter('/console/overview?sort=name');
    await page
      .getByText('1 project, 1,000 hosts. Requests (line) and attacks (bars), each on its own')
      .waitFor();
    await page.locator('.tile .sparkline').first().waitFor();
    expect(await page.locator('.tile').count()).toBe(97);
    await page.getByText('96 of 1,000 are shown').waitFor();
    await page.getByText('Show more').click();
    await page.getByText('host-0192.example').waitFor();
    await page.getByLabel('Find a project or host').fill('host-1000');
    await page.getByText('host-1000.example').waitFor();
  });
});
