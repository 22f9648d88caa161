/** The console on the data of the demo. */
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject } from 'vitest';
import { type Api, type Distribution, login } from './api.ts';
import { HAS_BROWSER, signIn, type Visit, visit } from './browser.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** The last whole day: its counts no longer change. */
export const TO = Math.floor(Date.now() / DAY_MS) * DAY_MS;
export const FROM = TO - DAY_MS;
export const FIXED = `from=${FROM}&to=${TO}`;

type FigureName = 'requests' | 'attacks' | 'share' | 'busiest';

/** The demo of the run, with a new browser context for each test. */
export class DemoConsole {
  api!: Api;
  page!: Page;
  address!: string;
  account!: { user: string; domain: string; password: string };
  #browser!: Browser;
  #visit!: Visit;

  async start(): Promise<void> {
    const { address, account, project_id } = inject('demo');
    this.address = address;
    this.account = account;
    this.api = await login(address, { ...account, project_id });
    this.#browser = await chromium.connect(inject('browser'));
  }

  async stop(): Promise<void> {
    await this.#browser?.close();
  }

  async enter(): Promise<void> {
    this.#visit = await visit(this.#browser, this.address);
    this.page = this.#visit.page;
  }

  async leave(): Promise<void> {
    await this.#visit.close();
    expect(this.#visit.complaints).toEqual([]);
  }

  async open(path: string): Promise<void> {
    await this.page.goto(path);
    await signIn(this.page, this.account);
    await this.loaded();
  }

  /** Waits until the page has finished loading its data. */
  async loaded(): Promise<void> {
    await this.page.locator('.content[aria-busy="false"]').waitFor();
  }

  /** The text of one of the four figures at the top. */
  async figure(name: FigureName): Promise<string> {
    return (await this.page.locator(`.figure.${name} .value`).textContent()) ?? '';
  }

  async number(name: FigureName): Promise<number> {
    return numberIn(await this.figure(name));
  }

  /** The bars by category. */
  async categories(): Promise<Distribution> {
    const rows = await this.page.locator('.bars tbody tr').all();
    const entries = rows.map(async (row) => [
      await row.getAttribute('data-key'),
      numberIn((await row.locator('td.number').first().textContent()) ?? ''),
    ]);
    return Object.fromEntries(await Promise.all(entries));
  }

  /** The file that a button of a panel downloads. */
  async downloaded(panel: string, name: string): Promise<Buffer> {
    const [download] = await Promise.all([
      this.page.waitForEvent('download'),
      this.page.locator(`${panel} button`, { hasText: name }).click(),
    ]);
    const chunks: Buffer[] = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return Buffer.concat(chunks);
  }
}

export function describeDemo(name: string, define: (demo: DemoConsole) => void): void {
  describe.skipIf(!HAS_BROWSER)(name, () => {
    const demo = new DemoConsole();
    beforeAll(() => demo.start());
    afterAll(() => demo.stop());
    beforeEach(() => demo.enter());
    afterEach(() => demo.leave());
    define(demo);
  });
}

export function numberIn(text: string): number {
  return Number(text.replaceAll(',', ''));
}
