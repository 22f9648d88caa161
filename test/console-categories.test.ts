/** The attacks by category: the layers add up to the attacks, and categories filter everything that the API can filter. */
import { expect, test } from 'vitest';
import { type Point, sum } from './api.ts';
import { describeDemo, FIXED, FROM, HOUR_MS, numberIn } from './console-fixtures.ts';

/** The vertical line through the middle of a point (of 60): each run of pixels of one colour, and its length. */
const RUNS_OF_PIXELS = `(() => {
  const canvas = document.querySelector('.pane.attacks canvas');
  const over = document.querySelector('.pane.attacks .u-over');
  const [plot, whole] = [over, canvas].map((one) => one.getBoundingClientRect());
  const scale = canvas.width / whole.width;
  const x = Math.round((plot.left - whole.left + (plot.width * (POINT + 0.5)) / 60) * scale);
  const bottom = Math.round((plot.bottom - whole.top) * scale);
  const { data } = canvas.getContext('2d').getImageData(x, 0, 1, bottom);
  const runs = [];
  for (let y = 0; y < bottom; y++) {
    const [red, green, blue, alpha] = data.slice(4 * y, 4 * y + 4);
    const colour = alpha === 255 ? \`rgb(\${red}, \${green}, \${blue})\` : 'none';
    if (runs.at(-1)?.[0] === colour) runs.at(-1)[1]++;
    else runs.push([colour, 1]);
  }
  return runs;
})()`;

describeDemo('the attacks by category', (demo) => {
  const row = (key: string) => demo.page.locator(`.distribution .bars tr[data-key=${key}]`);
  const chip = (name: string) => demo.page.getByRole('button', { name: `${name}. Remove the filter` });
  const filters = () => new URL(demo.page.url()).searchParams.getAll('category');

  async function series(query: string): Promise<Record<string, Point[]>> {
    const all = await demo.api.getJson<{ key: string; timeline: Point[] }[]>(
      `waf/overviews/attack/timeline?${query}`,
    );
    return Object.fromEntries(all.map(({ key, timeline }) => [key, timeline]));
  }

  /** The sums of the columns of the table that replaces the chart. */
  async function table(): Promise<Record<string, number>> {
    const region = demo.page.getByRole('region', { name: 'Timeline as a table' });
    const toggle = demo.page.getByRole('button', { name: 'Table' });
    await toggle.click();
    await region.locator('tbody tr').first().waitFor();
    const titles = await region.locator('thead th').allTextContents();
    const cells = await region
      .locator('tbody tr')
      .evaluateAll((rows) =>
        rows.map((one) => [...one.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
      );
    await toggle.click();
    const column = (i: number) => cells.reduce((total, texts) => total + numberIn(texts[i] ?? ''), 0);
    return Object.fromEntries(titles.slice(1).map((title, i) => [title, column(i + 1)]));
  }

  test('layers, table and list add up to the attacks', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const distribution = await demo.api.distribution(FIXED);
    expect(await demo.categories()).toEqual(distribution);
    const { Requests: requests, Attacks: attacks, ...columns } = await table();
    const { requests: points } = await demo.api.timeline(FIXED);
    expect(requests).toBe(sum(points));
    const some = Object.values(distribution).filter((n) => n > 0);
    expect(Object.values(columns)).toEqual(some.toSorted((a, b) => b - a));
    expect(attacks).toBe(sum(distribution));
    expect(await demo.number('attacks')).toBe(sum(distribution));
  });

  test('the height of a layer is its count, with the largest category at the bottom', async () => {
    const { attacks } = await demo.api.timeline(FIXED);
    const busiest = attacks.reduce((max, { num }, i) => (num > (attacks[max]?.num ?? 0) ? i : max), 0);
    const from = FROM + Math.min(busiest, 24 * 60 - 60) * 60_000;
    const index = busiest - (from - FROM) / 60_000;
    const range = `from=${from}&to=${from + HOUR_MS}`;
    const byCategory = await series(range);
    await demo.enter(`/console/?${range}`);
    await demo.page.locator('.pane.attacks canvas').waitFor();
    const runs = await demo.page.evaluate<[string, number][]>(RUNS_OF_PIXELS.replace('POINT', String(index)));
    const colours = await demo.page.evaluate<[string, string][]>(
      `[...document.querySelectorAll('.distribution tr[data-key]:not(.none)')].map((one) =>
        [one.dataset.key, getComputedStyle(one.querySelector('.bar')).backgroundColor])`,
    );
    const layers = runs.filter(([colour]) => colours.some(([, other]) => other === colour)).toReversed();
    const drawn = colours.filter(([, colour]) => layers.some(([other]) => other === colour));
    expect(layers.map(([colour]) => colour)).toEqual(drawn.map(([, colour]) => colour));
    const pixels = layers.reduce((total, [, length]) => total + length, 0);
    const count = (key: string) => byCategory[key]?.[index]?.num ?? 0;
    expect(colours.reduce((total, [key]) => total + count(key), 0)).toBe(attacks[busiest]?.num);
    for (const [key, colour] of colours) {
      const length = layers.find(([other]) => other === colour)?.[1] ?? 0;
      const wanted = (pixels * count(key)) / (attacks[busiest]?.num ?? 0);
      // The dashed line of the previous period may cross the layers.
      expect(Math.abs(length - wanted), key).toBeLessThan(3);
    }
  });

  test('categories are included and excluded, as chips and in the URL', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const types = await demo.api.distribution(FIXED);
    const { sqli = 0, robot = 0 } = types;
    const all = await demo.number('attacks');
    // The button covers the whole row.
    await row('sqli').locator('.track').click({ force: true });
    await chip('Category: SQL injection').waitFor();
    await expect.poll(() => demo.number('attacks')).toBe(sqli);
    expect(filters()).toEqual(['sqli']);
    await row('robot').getByText('Malicious crawlers').click();
    await expect.poll(() => demo.number('attacks')).toBe(sqli + robot);
    await demo.loaded();
    const { Requests: _, Attacks: __, ...columns } = await table();
    expect(columns).toEqual({ 'SQL injection': sqli, 'Malicious crawlers': robot });
    // The list keeps all counts, so that others can be chosen.
    expect(await demo.categories()).toEqual(types);
    await demo.page.reload();
    await demo.loaded();
    expect(await demo.number('attacks')).toBe(sqli + robot);
    await demo.page.getByText('Clear all').click();
    await expect.poll(() => demo.number('attacks')).toBe(all);
    await row('sqli')
      .getByText('SQL injection')
      .click({ modifiers: ['Alt'] });
    await chip('Not category: SQL injection').waitFor();
    await expect.poll(() => demo.number('attacks')).toBe(all - sqli);
    expect(filters()).toEqual(['-sqli']);
    await demo.page.goBack();
    await expect.poll(() => demo.number('attacks')).toBe(all);
  });

  test('the keyboard chooses a category, and the focus stays', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const button = row('lfi').getByRole('button', { name: 'Local file inclusion', exact: true });
    await button.focus();
    await demo.page.keyboard.press('Enter');
    await expect.poll(filters).toEqual(['lfi']);
    await demo.loaded();
    expect(await button.evaluate((one) => one.matches(':focus'))).toBe(true);
    expect(await button.getAttribute('aria-pressed')).toBe('true');
    await demo.page.keyboard.press('Space');
    await expect.poll(filters).toEqual([]);
    await expect.poll(() => button.getAttribute('aria-pressed')).toBe('false');
    expect(await button.evaluate((one) => one.matches(':focus'))).toBe(true);
  });

  test('each host has a line, and a click on one shows only this host', async () => {
    await demo.enter(`/console/?${FIXED}`);
    await demo.page.getByText('By host').click();
    await expect.poll(() => demo.page.locator('.timeline .legend .key').count()).toBe(6);
    const ids = await demo.api.hostIds();
    const legend = await demo.page.locator('.timeline .legend .key').allTextContents();
    for (const [hostname, id] of ids) {
      const { requests } = await demo.api.timeline(`${FIXED}&hosts=${id}`);
      expect(legend).toContain(`${hostname}${sum(requests).toLocaleString('en')}`);
    }
    await demo.page.locator('.timeline .legend').getByText('blog.example.com').click();
    await chip('Host: blog.example.com').waitFor();
    expect(demo.page.url()).toContain('by=host');
  });

  test('a range without attacks has an empty pane, and a filter can still be removed', async () => {
    const { requests, attacks } = await demo.api.timeline(FIXED);
    const quiet = requests.findIndex(({ num }, i) => num > 0 && attacks[i]?.num === 0);
    const range = `from=${FROM + quiet * 60_000}&to=${FROM + (quiet + 1) * 60_000}`;
    await demo.enter(`/console/?${range}&category=xss`);
    expect(await demo.number('attacks')).toBe(0);
    await row('xss').getByText('Cross-site scripting').click();
    await expect.poll(filters).toEqual([]);
  });

  test('a clock change makes no point longer or shorter, and its rows are told apart', async () => {
    const requested = demo.page.waitForRequest(/\/figures$/);
    // The demo has data of the last 30 days only; the points matter here.
    const [from, to] = [Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 23)];
    await demo.enter(`/console/?from=${from}&to=${to}&tz=Europe/Berlin`);
    const { edges } = (await requested).postDataJSON() as { edges: number[] };
    const own = edges.slice(edges.lastIndexOf(from));
    expect(own.at(-1)).toBe(to);
    expect(new Set(own.slice(1).map((edge, i) => edge - (own[i] ?? 0))).size).toBe(1);
    await demo.page.getByRole('button', { name: 'Custom range: Sun, 25 Oct' }).waitFor();
  });
});
