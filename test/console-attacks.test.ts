/** From a number to the attacks behind it: filters, the list, the side panel, and what to compare with. */
import { expect, test } from 'vitest';
import { type Point, sum } from './api.ts';
import { DAY_MS, describeDemo, FIXED, FROM, numberIn, TO } from './console-fixtures.ts';

interface Events {
  total: number;
  matched_attacks: number;
  items: {
    id: string;
    sip: string;
    request_line: string;
    rules: { id: string; variable: string; value: string }[];
  }[];
}

interface Situation {
  sentence: string;
  bursts: {
    from: number;
    to: number;
    category: string | null;
    source: string | null;
    host_id: string | null;
  }[];
}

interface TopList {
  total: number;
  items: { key: string; num: number }[];
}

describeDemo('the attacks', (demo) => {
  const filters = (name: string) => new URL(demo.page.url()).searchParams.getAll(name);
  const rows = (panel: string) => demo.page.locator(`.top-list.${panel} tbody tr`);
  const attacks = () => demo.page.locator('.attacks-list tbody tr');
  const drawer = () => demo.page.getByRole('dialog');
  const events = (query: string) => demo.api.getJson<Events>(`waf/event?${FIXED}&${query}`);

  test('a value filters everything, its exclusion all others, and requests say that they cannot follow', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const all = await demo.number('attacks');
    const source = (await rows('sources').first().getAttribute('data-key')) ?? '';
    await rows('sources').first().getByText(source).click();
    const { matched_attacks } = await events(`sips=${source}`);
    await expect.poll(() => demo.number('attacks')).toBe(matched_attacks);
    await demo.loaded();
    expect(filters('source')).toEqual([source]);
    const types = await demo.api.distribution(`${FIXED}&sips=${source}`);
    expect(await demo.categories()).toEqual(types);
    const rules = await demo.api.getJson<TopList>(`waf/overviews/attack/rule?${FIXED}&top=8&sips=${source}`);
    const shown = await rows('rules').evaluateAll((some) => some.map((row) => row.getAttribute('data-key')));
    expect(shown).toEqual(rules.items.map(({ key }) => key));
    const hosts = await demo.page.locator('.top-hosts tbody td:nth-of-type(1)').allTextContents();
    expect(hosts.reduce((total, text) => total + numberIn(text), 0)).toBe(matched_attacks);
    for (const name of ['requests', 'rate', 'peak', 'busiest'] as const)
      expect(await demo.figure(name)).toBe('–');
    expect(await demo.page.locator('.pane.requests').count()).toBe(0);
    await demo.page.getByText('Requests are not filtered').waitFor();
    await demo.page.getByRole('button', { name: `Source: ${source}. Remove the filter` }).click();
    await expect.poll(() => demo.number('attacks')).toBe(all);
    await demo.loaded();
    const rule = rows('rules').first();
    const id = (await rule.getAttribute('data-key')) ?? '';
    await rule.hover();
    await rule.getByRole('button', { name: `Exclude ${id}` }).click();
    const others = await events(`nrules=${id}`);
    await expect.poll(() => demo.number('attacks')).toBe(others.matched_attacks);
    expect(filters('rule')).toEqual([`-${id}`]);
    await demo.page.reload();
    await demo.page.getByRole('button', { name: `Not rule: ${id}. Remove the filter` }).waitFor();
    await expect.poll(() => demo.number('attacks')).toBe(others.matched_attacks);
  });

  test('what was only detected is one click away; an attack opens with its rules and commands', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const detected = await events('actions=log&pagesize=50');
    await demo.page.getByText(/ only detected$/).click();
    await expect.poll(() => filters('action')).toEqual(['log']);
    await expect.poll(() => demo.number('attacks')).toBe(detected.matched_attacks);
    await demo.page
      .locator('.attacks-panel')
      .getByText(`${detected.matched_attacks.toLocaleString('en')} attacks, newest first`)
      .waitFor();
    const requests = () => attacks().locator('.request code').allTextContents();
    await expect.poll(requests).toEqual(detected.items.map(({ request_line }) => request_line));
    if (detected.total > 50) {
      await demo.page.locator('.attacks-panel').getByText('Show more').click();
      await expect.poll(() => attacks().count()).toBe(Math.min(100, detected.total));
    }
    const [first] = detected.items;
    await attacks().first().click();
    const [rule] = first?.rules ?? [];
    await drawer()
      .getByText(rule?.value ?? '', { exact: true })
      .first()
      .waitFor();
    expect(await drawer().locator('.matched-rules > li').count()).toBe(first?.rules.length);
    const commands = await drawer().locator('.command code').allTextContents();
    expect(commands[0]).toContain(`/waf/event/${first?.id}'`);
    expect(commands[1]).toMatch(new RegExp(`^wafstat event \\S*${first?.id}\\S* --project `));
    // A link to the attack opens it, and closing leads to the list.
    await demo.page.reload();
    await drawer().getByText('Only this source').click();
    await expect.poll(() => filters('source')).toEqual([first?.sip]);
    expect(await drawer().count()).toBe(0);
    const both = await events(`actions=log&sips=${first?.sip}`);
    await expect.poll(() => demo.number('attacks')).toBe(both.matched_attacks);
  });

  test('a source opens with everything it did, and all sources can be searched', async () => {
    await demo.enter(`/console/?${FIXED}&category=robot`);
    const all = await demo.api.getJson<TopList>(`waf/overviews/attack/ip?${FIXED}&attacks=robot&top=1000`);
    await demo.page.locator('.top-list.sources').getByText(`Show all ${all.total}`).click();
    await drawer().getByText(`${all.total} of ${all.total}`).waitFor();
    const { key: source = '' } = all.items.at(-1) ?? {};
    await drawer().getByLabel('Find a source').fill(source);
    await drawer().getByText(source, { exact: true }).hover();
    await drawer()
      .getByRole('button', { name: `Details of ${source}` })
      .click();
    // Whatever the filter.
    const { matched_attacks } = await events(`sips=${encodeURIComponent(source)}`);
    await drawer()
      .getByText(`${matched_attacks.toLocaleString('en')}, `)
      .first()
      .waitFor();
    await drawer().getByText('Everything of this source').click();
    await expect.poll(() => demo.number('attacks')).toBe(matched_attacks);
    expect([filters('source'), filters('category')]).toEqual([[source], []]);
    await demo.page.goBack();
    await demo.page.goBack();
    await drawer().getByLabel('Find a source').waitFor();
    await demo.page.keyboard.press('Escape');
    await expect.poll(() => drawer().count()).toBe(0);
  });

  test('the sentence and the bursts lead to their attacks in two clicks', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const { sentence, bursts } = await demo.api.getJson<Situation>(
      `waf/overviews/situation?${FIXED}&timezone=UTC`,
    );
    expect(await demo.page.locator('.situation > p').textContent()).toBe(sentence);
    const burst = bursts.at(-1);
    if (burst === undefined) throw new Error('the demo has no burst on this day');
    expect(await demo.page.locator('.burst-mark').count()).toBe(bursts.length);
    await demo.page.getByRole('list', { name: 'Bursts' }).getByRole('link').first().click();
    await expect.poll(() => demo.page.url()).toContain(`from=${burst.from}&to=${burst.to}`);
    expect([filters('category'), filters('source'), filters('host')].flat()).toEqual(
      [burst.category, burst.source, burst.host_id].filter((value) => value !== null),
    );
    await demo.loaded();
    await demo.page.locator('.figure.attacks .value').getByRole('button').click();
    const query = [
      ...(burst.category ? [`attacks=${burst.category}`] : []),
      ...(burst.source ? [`sips=${encodeURIComponent(burst.source)}`] : []),
      ...(burst.host_id ? [`hosts=${burst.host_id}`] : []),
    ];
    const { matched_attacks } = await demo.api.getJson<Events>(
      `waf/event?from=${burst.from}&to=${burst.to}&${query.join('&')}`,
    );
    expect(matched_attacks).toBeGreaterThan(100);
    await demo.page
      .locator('.attacks-panel')
      .getByText(`${matched_attacks.toLocaleString('en')} attacks, newest first`)
      .waitFor();
  });

  test('the range can be compared with the same days last week, or with a date', async () => {
    await demo.enter(`/console/?${FIXED}`);
    const now = sum((await demo.api.timeline(FIXED)).requests);
    const changeFrom = async (days: number) => {
      const [from, to] = [FROM - days * DAY_MS, TO - days * DAY_MS];
      const { requests } = await demo.api.getJson<{ requests: Point[] }>(
        `waf/event/timeline?from=${from}&to=${to}`,
      );
      const percent = (now / sum(requests) - 1) * 100;
      return `${percent < 0 ? '−' : '+'}${Math.abs(percent).toFixed(1)}%`;
    };
    const shown = () => demo.page.locator('.figure.requests .difference').textContent();
    await demo.page.getByLabel('Compare with', { exact: true }).selectOption('week');
    expect(filters('compare')).toEqual(['week']);
    const week = await changeFrom(7);
    await expect.poll(shown).toContain(week);
    const date = new Date(FROM - 3 * DAY_MS).toISOString().slice(0, 10);
    await demo.page.getByLabel('Compare with', { exact: true }).selectOption('date');
    await demo.page.getByLabel('Date to compare with').fill(date);
    const earlier = await changeFrom(3);
    await expect.poll(shown).toContain(earlier);
    await demo.page.getByText(`vs ${date}`).first().waitFor();
    expect(filters('compare')).toEqual([date]);
  });

  test('the chart is split into blocked and only detected attacks', async () => {
    await demo.enter(`/console/?${FIXED}&by=action`);
    const { items } = await demo.api.getJson<TopList>(`waf/overviews/attack/action-types?${FIXED}`);
    const count = (key: string) => items.find((item) => item.key === key)?.num.toLocaleString('en');
    expect(await demo.page.locator('.timeline .legend .key').allTextContents()).toEqual([
      `Blocked${count('block')}`,
      `Only detected${count('log')}`,
    ]);
    await demo.page.locator('.timeline .legend').getByText('Blocked').click();
    await expect.poll(() => filters('action')).toEqual(['block']);
    await expect.poll(() => demo.figure('attacks')).toBe(count('block'));
  });
});
