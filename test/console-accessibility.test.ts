/** No axe-core violations and no horizontal overflow, in light and dark, on narrow and wide screens. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { describeDemo, signIn } from './console-fixtures.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const PAGES = {
  dashboard: '/console/?live=off',
  'dashboard by host': '/console/?live=off&by=host',
  'dashboard of a category': '/console/?live=off&category=sqli&category=-xss',
  'dashboard with filters': '/console/?live=off&source=-192.0.2.1&by=action&compare=week',
  'all sources': '/console/?live=off&open=source',
  'dashboard on a wall': '/console/?tv=on&live=off',
  overview: '/console/overview?live=off',
  hosts: '/console/hosts?live=off',
  sources: '/console/sources?live=off',
  tuning: '/console/tuning?live=off',
  alerts: '/console/alerts?live=off',
  credentials: '/console/credentials',
  admin: '/console/admin',
  audit: '/console/audit',
  'another project': '/console/?project=other',
  'a page that does not exist': '/console/nope',
};

const WIDTHS = [360, 390, 820, 3_840];

/** Those of the category `cat.color` that axe-core runs by default. */
const COLOR_RULES = ['color-contrast', 'link-in-text-block'];

interface Violation {
  id: string;
  nodes: { html: string }[];
}

describeDemo('the pages', (demo) => {
  /** The content security policy forbids foreign scripts, so axe-core is evaluated by the test. */
  const loadAxe = () => demo.page.evaluate(AXE);

  async function violations(options = {}): Promise<string[]> {
    const all = JSON.stringify({ resultTypes: ['violations'], ...options });
    const found = await demo.page.evaluate<Violation[]>(
      `axe.run(${all}).then(({ violations }) => violations)`,
    );
    return found.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
  }

  async function expectAccessible(name: string): Promise<void> {
    await loadAxe();
    expect({ name, found: await violations() }).toEqual({ name, found: [] });
    // Dark pages differ in their colors only: the function light-dark() of CSS has no other values.
    await demo.page.emulateMedia({ colorScheme: 'dark' });
    expect({ name, dark: await violations({ runOnly: COLOR_RULES }) }).toEqual({ name, dark: [] });
    await demo.page.emulateMedia({ colorScheme: 'light' });
  }

  async function expectFits(name: string): Promise<void> {
    for (const width of WIDTHS) {
      await demo.page.setViewportSize({ width, height: 900 });
      const overflow = () => demo.page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
      await expect.poll(overflow, { message: `${name} at ${width} pixels` }).toBe(0);
    }
    await demo.page.setViewportSize({ width: 1280, height: 900 });
  }

  test('have no violations in light and dark, and fit narrow and wide screens', async () => {
    await demo.page.goto('/console/');
    await demo.page.getByLabel('User').waitFor();
    await expectAccessible('sign-in page');
    await expectFits('sign-in page');
    await signIn(demo.page, demo.account);
    await demo.loaded();
    for (const [name, path] of Object.entries(PAGES)) {
      await demo.page.goto(path);
      await demo.page.locator('table, .empty, .tile, .message').first().waitFor();
      if (/dashboard|overview|hosts|audit/.test(name)) await demo.loaded();
      await expectAccessible(name);
      await expectFits(name);
    }
  });

  test('have no violations in drawers, popovers and dialogs', async () => {
    // A table of 60 rows: axe-core looks at each cell.
    await demo.enter('/console/?live=off&range=1hour');
    await loadAxe();
    await demo.page.locator('.timeline').getByRole('button', { name: 'Table' }).click();
    await demo.page.locator('.top-list.urls').getByRole('button', { name: 'Export' }).click();
    await demo.page.getByText('Copy as curl').waitFor();
    expect(await violations()).toEqual([]);
    await demo.page.getByRole('button', { name: /^Hosts/ }).click();
    await demo.page.locator('.host-list').getByText('api.example.com').waitFor();
    expect(await violations()).toEqual([]);
    await demo.page.keyboard.press('Escape');
    await expect.poll(() => demo.page.locator('.popover:visible').count()).toBe(0);
    await demo.page.goto('/console/admin');
    await demo.page.getByRole('button', { name: 'New user' }).click();
    await demo.page.getByLabel('Access (cannot be changed later)').waitFor();
    await loadAxe();
    expect(await violations()).toEqual([]);
  });

  test('have targets of 44 pixels for fingers, and a menu on a narrow screen', async () => {
    const context = await demo.newContext({
      viewport: { width: 390, height: 844 },
      hasTouch: true,
      isMobile: true,
    });
    const page = await context.newPage();
    await page.goto('/console/?live=off');
    await signIn(page, demo.account);
    await page.locator('.content[aria-busy="false"]').waitFor();
    await page.getByText('Menu').tap();
    await page.getByRole('link', { name: 'Hosts', exact: true }).waitFor();
    const small = await page.locator('button, a, select, input').evaluateAll((all) =>
      all
        .filter((one) => one.checkVisibility() && !one.matches('.skip'))
        .map((one) => `${one.textContent} ${Math.round(one.getBoundingClientRect().height)}`)
        .filter((text) => Number(text.split(' ').at(-1)) < 44),
    );
    expect(small).toEqual([]);
    await page.getByRole('link', { name: 'Hosts', exact: true }).tap();
    await page.getByRole('heading', { name: 'Hosts' }).waitFor();
    await context.close();
  });

  test('can be used with the keyboard alone', async () => {
    await demo.page.goto('/console/');
    const user = demo.page.getByLabel('User');
    await expect.poll(() => user.evaluate((one) => one.matches(':focus'))).toBe(true);
    await demo.page.keyboard.type(demo.account.user);
    await demo.page.keyboard.press('Tab');
    await demo.page.keyboard.press('Tab');
    await demo.page.keyboard.type(demo.account.password);
    await demo.page.keyboard.press('Enter');
    await demo.loaded();
    const week = demo.page.getByTitle('Last 7 days');
    for (let steps = 0; steps < 40 && !(await week.evaluate((e) => e.matches(':focus'))); steps++) {
      await demo.page.keyboard.press('Tab');
    }
    await demo.page.keyboard.press('Enter');
    await expect.poll(() => demo.page.url()).toContain('range=7days');
  });

  test('show the focus, and Escape or Cancel returns it to what opened a dialog', async () => {
    const { page } = demo;
    const opens = async (name: string, panel: string, close: () => Promise<void>) => {
      const opener = page.getByRole('button', { name });
      await opener.focus();
      await page.keyboard.press('Enter');
      await page.locator(`${panel}:visible`).waitFor();
      await close();
      await expect.poll(() => page.locator(`${panel}:visible`).count(), { message: name }).toBe(0);
      expect(await opener.evaluate((one) => one.matches(':focus-visible')), name).toBe(true);
    };
    const pressEscape = () => page.keyboard.press('Escape');
    await demo.enter('/console/?live=off');
    for (const name of ['Hosts: All hosts', 'Custom range']) await opens(name, '.popover', pressEscape);
    await page.locator('nav').getByText('Users and projects').click();
    for (const name of ['New user', 'Edit admin', 'Delete default']) await opens(name, 'dialog', pressEscape);
    for (const name of ['New user', 'Delete default'])
      await opens(name, 'dialog', () => page.getByText('Cancel').press('Enter'));
    const hidden = await page.evaluate<string[]>(`
      [...document.querySelectorAll('main :is(button, a, select, input, [tabindex="0"])')]
        .filter((one) => one.checkVisibility())
        .filter((one) => (one.focus(), getComputedStyle(one).outlineStyle === 'none'))
        .map((one) => one.outerHTML)`);
    expect(hidden).toEqual([]);
  });

  test('remember the theme', async () => {
    await demo.enter('/console/?live=off');
    const background = () =>
      demo.page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor');
    const light = await background();
    await demo.page.getByRole('button', { name: 'Switch to dark theme' }).click();
    const dark = await background();
    expect(dark).not.toBe(light);
    await demo.page.reload();
    await demo.loaded();
    expect(await background()).toBe(dark);
  });
});
