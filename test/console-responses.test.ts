/** Response codes, bytes and error pages on the dashboard. */
import { expect, test } from 'vitest';
import { type Point, sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, HOUR_MS, numberIn, TO } from './console-fixtures.ts';

type Series = { key: string; timeline: Point[] }[];

interface Pages {
  total: number;
  requests: number;
  items: { key: string; num: number; host: string; host_id: string }[];
}

describeDemo('responses', (demo) => {
  const panel = () => demo.page.getByRole('region', { name: 'Responses', exact: true });
  const pages = () => demo.page.locator('.error-pages');

  /** Requests by class, by the API. */
  async function classes(query: string): Promise<Record<string, number>> {
    const series = await demo.api.getJson<Series>(`waf/overviews/response-code/timeline?${query}`);
    const counts: Record<string, number> = {};
    for (const { key, timeline } of series) {
      const name = key === 'none' ? 'no code' : `${key[0]}xx`;
      counts[name] = (counts[name] ?? 0) + sum(timeline);
    }
    return counts;
  }

  async function legend(): Promise<Record<string, number>> {
    const items = await panel().getByRole('listitem').all();
    const entries = await Promise.all(
      items.map(async (item) => {
        const [, name = ''] = /^(\dxx|no code)/.exec((await item.textContent()) ?? '') ?? [];
        return [name, numberIn((await item.locator('b').textContent()) ?? '')] as const;
      }),
    );
    return Object.fromEntries(entries.filter(([name]) => name !== ''));
  }

  test('the classes of codes equal the API, for all hosts and for one; filters on attacks say so', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const wanted = await classes(FIXED);
    expect(Object.keys(wanted).sort()).toEqual(['2xx', '3xx', '4xx', '5xx']);
    expect(await legend()).toEqual(wanted);
    expect(sum(wanted)).toBe(await demo.number('requests'));
    expect(await panel().innerText()).toMatch(
      /[\d.]+ kB\/s sent on average, [\d.]+ kB\/s in the busiest interval/,
    );
    const host = (await demo.api.hostIds()).get('shop.example.com');
    await demo.page.goto(`/console/?${FIXED}&host=${host}`);
    await demo.loaded();
    expect(await legend()).toEqual(await classes(`${FIXED}&hosts=${host}`));
    await demo.page.goto(`/console/?${FIXED}&action=log`);
    await demo.loaded();
    await panel().getByText('Hidden: filters select attacks, not responses').waitFor();
    expect(await pages().count()).toBe(0);
  });

  test('without responses 500, the pages of another code are shown first', async () => {
    const json = { total: 0, requests: 0, from: FROM, to: TO, items: [] };
    await demo.page.route(/overviews\/abnormal.*code=50[02]/, (route) => route.fulfill({ json }));
    await demo.enter(`/console/?${FIXED}`);
    await pages().scrollIntoViewIfNeeded();
    const pressed = pages().getByRole('button', { pressed: true });
    await expect.poll(() => pressed.allTextContents()).toEqual(['404']);
    expect(await pages().locator('tbody tr').count()).toBeGreaterThan(2);
  });

  test('the pages with the most errors equal the API, by code', async () => {
    await demo.enter(`/console/?${FIXED}`);
    for (const code of [500, 404]) {
      await pages()
        .getByRole('button', { name: String(code) })
        .click();
      const wanted = await demo.api.getJson<Pages>(`waf/overviews/abnormal?${FIXED}&code=${code}&top=8`);
      expect(wanted.items.length).toBeGreaterThan(2);
      const rows = pages().locator('tbody tr');
      await expect
        .poll(async () => (await rows.allTextContents()).map((text) => text.trim()))
        .toEqual(wanted.items.map(({ host, key, num }) => `${host}${key}${num.toLocaleString('en')}`));
      const requests = wanted.requests.toLocaleString('en');
      await pages().getByText(`${requests} requests, ${wanted.total} pages`).waitFor();
    }
    await pages()
      .getByRole('button', { name: /^www\.example\.com$/ })
      .first()
      .click();
    await expect.poll(() => demo.page.url()).toContain('host=');
  });

  test('before and after an annotation, there is the share of server errors', async () => {
    const time = FROM + DAY_MS / 2;
    const body = JSON.stringify({ text: 'new version', time });
    const { text } = await demo.api.get('waf/annotations', { method: 'POST', body });
    await demo.enter(`/console/?${FIXED}&open=annotation:${JSON.parse(text).id}`);
    const drawer = demo.page.getByRole('dialog');
    await drawer.getByRole('button', { name: '6 h' }).click();
    await drawer.getByText('6 h before').waitFor();
    const share = async (from: number, to: number) => {
      const counts = await classes(`from=${from}&to=${to}`);
      return `${(((counts['5xx'] ?? 0) / sum(counts)) * 100).toFixed(1)}%`;
    };
    const cells = drawer.getByRole('row', { name: 'Server errors (5xx)' }).locator('td');
    const shown = (await cells.allTextContents()).slice(0, 2);
    expect(shown).toEqual([await share(time - 6 * HOUR_MS, time), await share(time, time + 6 * HOUR_MS)]);
  });
});
