/** What is chosen is what is drawn, and it stands in the address. */
import { expect, test } from 'vitest';
import { sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, HOUR_MS } from './console-demo.ts';

describeDemo('the dashboard', (demo) => {
  test('every range is one of the API, and stands in the address', async () => {
    await demo.open('/console/?live=off');
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
      const asked = demo.page.waitForRequest(/event\/timeline/);
      await demo.page.getByTitle(name, { exact: true }).click();
      const query = new URL((await asked).url()).searchParams;
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

  test('a range of one’s own is on the chosen clock, down to the minute', async () => {
    await demo.open('/console/?tz=%2B05:45');
    await demo.page.getByRole('button', { name: 'Own range' }).click();
    const local = (time: number) => new Date(time + 5.75 * HOUR_MS).toISOString().slice(0, 16);
    await demo.page.getByLabel('From').fill(local(FROM + 60_000));
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM + 61 * 60_000));
    await demo.page.getByRole('button', { name: 'Show', exact: true }).click();
    await demo.loaded();
    expect(demo.page.url()).toContain(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    const { requests } = await demo.api.timeline(`from=${FROM + 60_000}&to=${FROM + 61 * 60_000}`);
    expect(await demo.number('requests')).toBe(sum(requests));
    await demo.page.getByRole('button', { name: 'Own range' }).click();
    await demo.page.getByLabel('To', { exact: true }).fill(local(FROM));
    await demo.page.getByRole('button', { name: 'Show', exact: true }).click();
    await demo.page.getByText('The start must be before the end.').waitFor();
  });

  test('another time zone moves the days', async () => {
    await demo.open('/console/?range=yesterday');
    const { requests } = await demo.api.timeline('recent=yesterday&timezone=%2B00:00');
    expect(await demo.number('requests')).toBe(sum(requests));
    await demo.page.getByLabel('Time zone').selectOption('+14:00');
    await expect.poll(() => demo.page.url()).toContain('tz=%2B14%3A00');
    await demo.loaded();
    const there = await demo.api.timeline('recent=yesterday&timezone=%2B14:00');
    await expect.poll(() => demo.number('requests')).toBe(sum(there.requests));
  });

  test('hosts are found by a part of their name, several can be chosen, and the numbers are theirs', async () => {
    await demo.open(`/console/?${FIXED}`);
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

  test('an address survives a reload and can be given to someone else', async () => {
    const ids = await demo.api.hostIds();
    const path = `/console/?${FIXED}&tz=-03:30&host=${ids.get('www.example.com')}&hide=attacks`;
    await demo.open(path);
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

  test('dragging over the timeline zooms in, and back goes back', async () => {
    await demo.open(`/console/?${FIXED}`);
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

  test('under the pointer, and under the arrow keys, stand the exact values of a point', async () => {
    await demo.open(`/console/?from=${FROM}&to=${FROM + HOUR_MS}`);
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

  test('a series that is switched off is not drawn, and the address says so', async () => {
    await demo.open(`/console/?${FIXED}`);
    const drawn = () =>
      demo.page
        .locator('.chart canvas')
        .evaluate((canvas) => (canvas as unknown as { toDataURL(): string }).toDataURL());
    const both = await drawn();
    await demo.page.locator('button.key.requests').click();
    await expect.poll(drawn).not.toBe(both);
    expect(demo.page.url()).toContain('hide=requests');
    await demo.page.locator('button.key.requests').click();
    await expect.poll(drawn).toBe(both);
  });

  test('new events show up by themselves, until it is paused', async () => {
    await demo.page.clock.install();
    await demo.open('/console/?range=1hour');
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
});
