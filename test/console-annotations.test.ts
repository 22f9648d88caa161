/** Annotations in the timeline, and the numbers before and after one. */
import { expect, test } from 'vitest';
import { sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, HOUR_MS, numberIn, TO } from './console-fixtures.ts';

const NOON = FROM + DAY_MS / 2;

describeDemo('annotations', (demo) => {
  const drawer = () => demo.page.getByRole('dialog');
  const cells = async (name: string) =>
    (await drawer().getByRole('row', { name }).locator('td').allTextContents()).map((text) => text.trim());

  async function annotate(fields: { text: string; time: number; link?: string }): Promise<string> {
    const { status, text } = await demo.api.get('waf/annotations', {
      method: 'POST',
      body: JSON.stringify(fields),
    });
    expect(status, text).toBe(200);
    return JSON.parse(text).id;
  }

  test('a line says what happened, and a click compares the same time before and after', async () => {
    const markup = '<b>release</b> 4.2';
    const id = await annotate({ text: markup, time: NOON, link: 'https://git.example.com/4.2' });
    await annotate({ text: 'of another day', time: FROM - 1 });
    await demo.enter(`/console/?${FIXED}&tz=%2B00:00`);
    const line = demo.page.locator('.timeline .annotation', { hasText: markup });
    // Its text appears last, when the chart is in place.
    await line.waitFor();
    const [mark, chart] = [
      await line.boundingBox(),
      await demo.page.locator('.timeline .chart').boundingBox(),
    ];
    const place = ((mark?.x ?? 0) - (chart?.x ?? 0)) / (chart?.width ?? 1);
    expect(Math.round(place * 10)).toBe(5);
    expect(await demo.page.getByText('of another day').count()).toBe(0);
    await demo.page.mouse.move((mark?.x ?? 0) + 3, (chart?.y ?? 0) + (chart?.height ?? 0) / 2);
    await expect.poll(() => demo.page.locator('.tooltip').textContent()).toContain(markup);

    const link = demo.page.getByRole('list', { name: 'Annotations' }).getByRole('link', { name: markup });
    await link.press('Enter');
    await drawer().getByText('git.example.com').waitFor();
    expect(new URL(demo.page.url()).searchParams.get('open')).toBe(`annotation:${id}`);
    expect(await drawer().getByRole('link').getAttribute('href')).toBe('https://git.example.com/4.2');
    await drawer().getByRole('button', { name: '6 h' }).click();
    await drawer().getByText('6 h before').waitFor();
    const counts = async (from: number, to: number) => {
      const { requests, attacks } = await demo.api.timeline(`from=${from}&to=${to}`);
      return [sum(requests), sum(attacks)];
    };
    const [before, after] = [await counts(NOON - 6 * HOUR_MS, NOON), await counts(NOON, NOON + 6 * HOUR_MS)];
    const shown = [await cells('Requests'), await cells('Attacks')].map((row) =>
      row.slice(0, 2).map(numberIn),
    );
    expect(shown).toEqual([
      [before[0], after[0]],
      [before[1], after[1]],
    ]);
    expect((await cells('Blocked'))[0]).toMatch(/^\d+(\.\d)?%$/);
    await drawer().getByRole('button', { name: 'Show this range' }).click();
    await expect.poll(() => demo.page.url()).toContain(`from=${NOON - 6 * HOUR_MS}&to=${NOON + 6 * HOUR_MS}`);
  });

  test('annotations that are near each other are one mark with their number, which a click zooms into', async () => {
    const morning = FROM + DAY_MS / 4;
    const MINUTE_MS = 60_000;
    for (let i = 0; i < 5; i++) await annotate({ text: `deploy ${i}`, time: morning + i * MINUTE_MS });
    await demo.enter(`/console/?${FIXED}&tz=%2B00:00`);
    const mark = demo.page.locator('.timeline').getByTitle(/^5 annotations, /);
    await mark.waitFor();
    expect(
      await demo.page
        .locator('.timeline')
        .getByTitle(/^deploy/)
        .count(),
    ).toBe(0);
    const list = demo.page.getByRole('list', { name: 'Annotations' });
    expect(await list.getByRole('link', { name: 'deploy' }).count()).toBe(5);
    await mark.click();
    await expect.poll(() => Number(new URL(demo.page.url()).searchParams.get('from'))).toBeGreaterThan(FROM);
    expect(Number(new URL(demo.page.url()).searchParams.get('from'))).toBeLessThanOrEqual(morning);
  });

  test('a click on the line opens the same; filters apply, and a deleted annotation says so', async () => {
    const id = await annotate({ text: 'rules', time: TO - HOUR_MS });
    await demo.enter(`/console/?${FIXED}&action=block`);
    await demo.page
      .locator('.timeline')
      .getByTitle(/^rules, /)
      .click();
    await drawer().getByText('Requests are not filtered').waitFor();
    expect(await drawer().getByRole('row', { name: 'Requests' }).count()).toBe(0);
    expect((await cells('Blocked')).slice(0, 2)).toEqual(['100.0%', '100.0%']);
    expect((await demo.api.get(`waf/annotations/${id}`, { method: 'DELETE' })).status).toBe(204);
    await demo.page.goto(`/console/?${FIXED}&open=annotation:${id}`);
    await drawer().getByText('This annotation was deleted.').waitFor();
  });
});
