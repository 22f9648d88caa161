/** The timeline by category: its layers add up to the attacks, and a category filters. */
import { expect, test } from 'vitest';
import { type Distribution, type Point, sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, HOUR_MS, numberIn } from './console-fixtures.ts';

const STACK = `/console/?${FIXED}&by=category`;

/** The vertical line through the middle of a point (of 60): each run of pixels of one colour, and its length. */
const RUNS_OF_PIXELS = `(() => {
  const canvas = document.querySelector('.chart canvas');
  const [plot, whole] = [document.querySelector('.u-over'), canvas].map((one) => one.getBoundingClientRect());
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

describeDemo('the timeline by category', (demo) => {
  const mode = (name: string) => demo.page.getByRole('button', { name, exact: true });
  const legend = (name: string) => demo.page.locator('.legend').getByRole('button', { name });
  const row = (key: string) => demo.page.locator(`.distribution .bars tr[data-key=${key}]`);
  const rowButton = (key: string) => row(key).getByRole('button');
  const chip = () => demo.page.getByRole('button', { name: /^Category: .* Remove the filter$/ });
  const parameter = (name: string) => new URL(demo.page.url()).searchParams.get(name);

  async function series(query: string): Promise<Record<string, Point[]>> {
    const all = await demo.api.getJson<{ key: string; timeline: Point[] }[]>(
      `waf/overviews/attack/timeline?${query}`,
    );
    return Object.fromEntries(all.map(({ key, timeline }) => [key, timeline]));
  }

  /** The sums of the columns of the table. */
  async function table(): Promise<Record<string, number>> {
    const region = demo.page.getByRole('region', { name: 'Timeline as a table' });
    if (!(await region.isVisible())) await demo.page.getByRole('button', { name: 'Table' }).click();
    const titles = await region.locator('thead th').allTextContents();
    const cells = await region
      .locator('tbody tr')
      .evaluateAll((rows) =>
        rows.map((one) => [...one.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
      );
    const column = (i: number) => cells.reduce((total, texts) => total + numberIn(texts[i] ?? ''), 0);
    return Object.fromEntries(titles.slice(1).map((title, i) => [title, column(i + 1)]));
  }

  /** The numbers in the legend, by name. */
  async function legendCounts(): Promise<Record<string, number>> {
    const entries = await demo.page
      .locator('.legend button')
      .evaluateAll((all) =>
        all.map((one) => [one.firstChild?.textContent ?? '', one.querySelector('b')?.textContent ?? '']),
      );
    return Object.fromEntries(entries.map(([name = '', count = '']) => [name, numberIn(count)]));
  }

  test('layers, legend, table and list add up to the attacks; the call is made only while it is needed', async () => {
    const called: string[] = [];
    demo.page.on('request', (request) => {
      if (/attack\/(type|timeline)/.test(request.url()))
        called.push(new URL(request.url()).pathname.split('/waf/')[1] ?? '');
    });
    await demo.enter(`/console/?${FIXED}`);
    expect(called).toEqual(['event/attack/type']);
    expect(await mode('Requests and attacks').getAttribute('aria-pressed')).toBe('true');
    await mode('By category').click();
    await legend('SQL injection').waitFor();
    expect(called).toEqual(['event/attack/type', 'overviews/attack/timeline']);
    expect(await mode('By category').getAttribute('aria-pressed')).toBe('true');
    const distribution = await demo.api.distribution(FIXED);
    expect(await demo.categories()).toEqual(distribution);
    const some = Object.values(distribution).filter((n) => n > 0);
    expect(Object.values(await legendCounts())).toEqual(some.toSorted((a, b) => b - a));
    expect(await table()).toEqual(await legendCounts());
    expect(await demo.number('attacks')).toBe(sum(distribution));
    expect(await demo.page.locator('.timeline header .sum').textContent()).toBe(
      `Attacks ${sum(distribution).toLocaleString('en')}`,
    );
    const shown = demo.page.url();
    expect(parameter('by')).toBe('category');
    await demo.page.reload();
    await demo.loaded();
    expect(demo.page.url()).toBe(shown);
    expect(await demo.categories()).toEqual(distribution);
    await mode('Requests and attacks').click();
    await expect.poll(() => demo.page.url()).not.toContain('category');
    await demo.loaded();
    expect(await demo.page.locator('.legend').isVisible()).toBe(false);
    expect(Object.keys(await table())).toEqual(['Requests', 'Attacks']);
  });

  test('the height of a layer is its count, with the largest category at the bottom', async () => {
    const { attacks } = await demo.api.timeline(FIXED);
    const busiest = attacks.reduce((max, { num }, i) => (num > (attacks[max]?.num ?? 0) ? i : max), 0);
    const from = FROM + Math.min(busiest, 24 * 60 - 60) * 60_000;
    const index = busiest - (from - FROM) / 60_000;
    const range = `from=${from}&to=${from + HOUR_MS}`;
    const byCategory = await series(range);
    await demo.enter(`/console/?${range}&by=category`);
    const runs = await demo.page.evaluate<[string, number][]>(RUNS_OF_PIXELS.replace('POINT', String(index)));
    const layers = runs.filter(([colour]) => colour !== 'none').toReversed();
    const colours = await demo.page.evaluate<[string, string][]>(
      `[...document.querySelectorAll('.legend button')].map((one) =>
        [one.dataset.focus, getComputedStyle(one, '::before').backgroundColor])`,
    );
    const drawn = colours.filter(([, colour]) => layers.some(([other]) => other === colour));
    expect(layers.map(([colour]) => colour)).toEqual(drawn.map(([, colour]) => colour));
    const pixels = layers.reduce((total, [, length]) => total + length, 0);
    const count = (key: string) => byCategory[key]?.[index]?.num ?? 0;
    expect(colours.reduce((total, [key]) => total + count(key), 0)).toBe(attacks[busiest]?.num);
    for (const [key, colour] of colours) {
      const length = layers.find(([other]) => other === colour)?.[1] ?? 0;
      const wanted = (pixels * count(key)) / (attacks[busiest]?.num ?? 0);
      expect(Math.abs(length - wanted), key).toBeLessThan(1.5);
    }
  });

  test('a category in the list shows only its attacks, and the chip shows all again', async () => {
    await demo.enter(STACK);
    const before = await demo.page.locator('.figures').textContent();
    const all = await legendCounts();
    const sqli = all['SQL injection'] ?? 0;
    // The button covers the whole row.
    await row('sqli').locator('.track').click({ force: true });
    await chip().waitFor();
    expect(parameter('category')).toBe('sqli');
    expect(await rowButton('sqli').getAttribute('aria-pressed')).toBe('true');
    expect(await legend('SQL injection').getAttribute('aria-pressed')).toBe('true');
    expect(await demo.page.locator('[aria-pressed=true]', { hasText: 'HTTP floods' }).count()).toBe(0);
    expect(sum((await series(FIXED)).sqli ?? [])).toBe(sqli);
    expect(await table()).toEqual({ 'SQL injection': sqli });
    // The filter is that of the timeline: all other numbers, and the comparison with the previous period, stay.
    expect(await legendCounts()).toEqual(all);
    expect(await demo.page.locator('.figures').textContent()).toBe(before);
    await demo.page.reload();
    await demo.loaded();
    expect(await table()).toEqual({ 'SQL injection': sqli });
    await chip().click();
    await expect.poll(() => parameter('category')).toBe(null);
    await demo.loaded();
    expect(await chip().count()).toBe(0);
    expect(await table()).toEqual(all);
    expect(await mode('By category').evaluate((one) => one.matches(':focus'))).toBe(true);
  });

  test('a category in the legend filters, another replaces it, and a second click shows all', async () => {
    await demo.enter(STACK);
    await legend('SQL injection').click();
    await expect.poll(() => parameter('category')).toBe('sqli');
    await legend('Malicious crawlers').click();
    await expect.poll(() => parameter('category')).toBe('robot');
    await demo.loaded();
    expect(Object.keys(await table())).toEqual(['Malicious crawlers']);
    await demo.page.goBack();
    await expect.poll(() => parameter('category')).toBe('sqli');
    await demo.loaded();
    await expect.poll(async () => Object.keys(await table())).toEqual(['SQL injection']);
    await legend('SQL injection').click();
    await expect.poll(() => parameter('category')).toBe(null);
  });

  test('with requests and attacks, the attacks are those of the category', async () => {
    const range = `from=${FROM}&to=${FROM + HOUR_MS}`;
    await demo.enter(`/console/?from=${FROM}&to=${FROM + DAY_MS}&hide=attacks`);
    await rowButton('robot').click();
    await chip().waitFor();
    expect(parameter('hide')).toBe(null);
    const { requests } = await demo.api.timeline(FIXED);
    const { robot = [] } = await series(FIXED);
    expect(await table()).toEqual({ Requests: sum(requests), 'Malicious crawlers': sum(robot) });
    expect(await demo.page.locator('button.key.attacks b').textContent()).toBe(String(sum(robot)));
    await demo.page.goto(`/console/?${range}&category=robot`);
    await demo.loaded();
    await demo.page.locator('.chart').focus();
    const tooltip = demo.page.locator('.tooltip');
    await demo.page.keyboard.press('ArrowRight');
    await expect.poll(() => tooltip.textContent()).toContain('00:00 – 00:01');
    expect(await tooltip.locator('.robot b').textContent()).toBe(String(robot[0]?.num));
    expect(await tooltip.locator('.requests b').textContent()).toBe(String(requests[0]?.num));
  });

  test('the keyboard chooses a category, and the focus stays', async () => {
    await demo.enter(STACK);
    const focused = (key: string) => rowButton(key).evaluate((one) => one.matches(':focus'));
    await rowButton('lfi').focus();
    await demo.page.keyboard.press('Enter');
    await expect.poll(() => parameter('category')).toBe('lfi');
    await demo.loaded();
    await chip().waitFor();
    expect(await focused('lfi')).toBe(true);
    await demo.page.keyboard.press('Space');
    await expect.poll(() => parameter('category')).toBe(null);
    await demo.loaded();
    await expect.poll(() => rowButton('lfi').getAttribute('aria-pressed')).toBe('false');
    expect(await focused('lfi')).toBe(true);
  });

  test('live mode refreshes the categories and keeps the focus; a drag zooms in', async () => {
    await demo.page.clock.install();
    await demo.enter('/console/?by=category');
    const cc = demo.page.locator('.legend [data-focus=cc]');
    await cc.focus();
    await cc.evaluate((one) => one.setAttribute('data-old', ''));
    await demo.page.clock.fastForward(5_000);
    await expect.poll(() => cc.getAttribute('data-old')).toBe(null);
    expect(await cc.evaluate((one) => one.matches(':focus'))).toBe(true);
    await demo.page.goto(STACK);
    await demo.loaded();
    const plot = await demo.page.locator('.u-over').boundingBox();
    if (plot === null) throw new Error('nothing is drawn');
    const y = plot.y + plot.height / 2;
    await demo.page.mouse.move(plot.x + plot.width * 0.2, y);
    await demo.page.mouse.down();
    await demo.page.mouse.move(plot.x + plot.width * 0.8, y, { steps: 4 });
    await demo.page.mouse.up();
    await expect.poll(() => demo.page.url()).not.toContain(FIXED);
    await demo.loaded();
    const zoomed = `from=${parameter('from')}&to=${parameter('to')}`;
    const distribution = await demo.api.distribution(zoomed);
    await expect.poll(() => demo.categories()).toEqual(distribution);
    expect(Object.values(await table()).reduce((total, n) => total + n, 0)).toBe(sum(distribution));
  });

  test('a range without attacks says so, and the filter can still be removed', async () => {
    const { requests, attacks } = await demo.api.timeline(FIXED);
    const quiet = requests.findIndex(({ num }, i) => num > 0 && attacks[i]?.num === 0);
    const range = `from=${FROM + quiet * 60_000}&to=${FROM + (quiet + 1) * 60_000}`;
    await demo.enter(`/console/?${range}&by=category`);
    await demo.page.getByText('No attacks in this range', { exact: true }).waitFor();
    expect(await demo.page.locator('.legend button, .distribution .bars button').count()).toBe(0);
    await demo.page.goto(`/console/?${range}&by=category&category=xss`);
    await demo.page.getByText('No attacks in this range: Cross-site scripting').waitFor();
    await rowButton('xss').click();
    await expect.poll(() => parameter('category')).toBe(null);
  });

  test('CSV, PNG and curl have the categories', async () => {
    await demo.enter(STACK);
    const all = await series(FIXED);
    const lines = (await demo.downloaded('.timeline', 'CSV')).toString().trimEnd().split('\r\n');
    expect(lines[0]).toBe(`from,to,${Object.keys(all).join(',')}`);
    expect(lines).toHaveLength((all.xss?.length ?? 0) + 1);
    const counts = lines.slice(1).map((line) => line.split(',').slice(2).map(Number));
    for (const [i, points] of Object.values(all).entries())
      expect(counts.map((cells) => cells[i])).toEqual(points.map(({ num }) => num));
    expect((await demo.downloaded('.timeline', 'PNG')).subarray(1, 4).toString()).toBe('PNG');
    await demo.page.locator('.timeline button', { hasText: 'curl' }).click();
    const command = (await demo.page.locator('.timeline pre').textContent()) ?? '';
    const url = new URL(/'(http[^']+)'/.exec(command)?.[1] ?? '');
    const path = url.pathname.slice(`/v1/${demo.api.project}/`.length);
    expect(path).toBe('waf/overviews/attack/timeline');
    const response = await demo.api.getJson<{ key: string; timeline: Point[] }[]>(`${path}${url.search}`);
    const distribution: Distribution = Object.fromEntries(
      response.map(({ key, timeline }) => [key, sum(timeline)]),
    );
    expect(distribution).toEqual(await demo.categories());
  });
});
