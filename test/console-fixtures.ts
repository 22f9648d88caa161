/** Fixtures of the console tests: the demo of the run, or a new installation for each test. */
import { buffer } from 'node:stream/consumers';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject } from 'vitest';
import { type Api, call, type Distribution, login } from './api.ts';
import { HAS_BROWSER } from './console-setup.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

export interface Account {
  user: string;
  domain: string;
  password: string;
}

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** The last whole day that ended at least an hour ago: its counts no longer change. */
export const TO = Math.floor((Date.now() - HOUR_MS) / DAY_MS) * DAY_MS;
export const FROM = TO - DAY_MS;
export const FIXED = `from=${FROM}&to=${TO}`;

/** For actions and waits: the default of 30 s can be too short on a busy machine. */
const TIMEOUT_MS = 120_000;

type FigureName = 'requests' | 'attacks' | 'rate' | 'blocked' | 'peak' | 'busiest';

/** The browser of the run, with a new context for each test. */
class ConsoleFixture {
  page!: Page;
  protected browser!: Browser;
  /** Script errors and requests to other origins. */
  #problems: string[] = [];

  async open(): Promise<void> {
    this.browser = await chromium.connect(inject('browser'));
  }

  async close(): Promise<void> {
    await this.browser?.close();
  }

  /** Opens a new browser context: no cookies, time zone UTC. */
  protected async visit(address: string): Promise<void> {
    const viewport = { width: 1280, height: 900 };
    const common = { timezoneId: 'UTC', locale: 'en-GB', reducedMotion: 'reduce', baseURL: address } as const;
    const context = await this.browser.newContext({ ...common, viewport });
    context.setDefaultTimeout(TIMEOUT_MS);
    this.page = await context.newPage();
    this.#problems = [];
    this.page.on('pageerror', (error) => this.#problems.push(String(error)));
    this.page.on('console', (message) => {
      // The browser logs every error status; whether it is right is for the test to decide.
      const isStatus = message.text().startsWith('Failed to load resource');
      if (message.type() === 'error' && !isStatus) this.#problems.push(message.text());
    });
    this.page.on('request', (request) => {
      const url = request.url();
      if (new URL(url).origin !== address && !/^(blob|data):/.test(url))
        this.#problems.push(`request to ${url}`);
    });
  }

  async stop(): Promise<void> {
    await this.page.context().close();
    expect(this.#problems).toEqual([]);
  }
}

/** The demo of the run, with a new browser context for each test. */
export class DemoConsole extends ConsoleFixture {
  api!: Api;
  address!: string;
  account!: Account;
  #cookies: Awaited<ReturnType<BrowserContext['cookies']>> | null = null;

  override async open(): Promise<void> {
    const { address, account, project_id } = inject('demo');
    this.address = address;
    this.account = account;
    this.api = await login(address, { ...account, project_id });
    await super.open();
  }

  start(): Promise<void> {
    return this.visit(this.address);
  }

  /** Another device. */
  async newContext(options: BrowserContextOptions): Promise<BrowserContext> {
    const common = { timezoneId: 'UTC', locale: 'en-GB', baseURL: this.address };
    const context = await this.browser.newContext({ ...common, ...options });
    context.setDefaultTimeout(TIMEOUT_MS);
    return context;
  }

  /** Signs in, through the page the first time, and later with the cookies of that session. */
  async enter(path: string): Promise<void> {
    const context = this.page.context();
    if (this.#cookies !== null) await context.addCookies(this.#cookies);
    await this.page.goto(path);
    if (this.#cookies === null) await signIn(this.page, this.account);
    await this.loaded();
    this.#cookies ??= await context.cookies();
  }

  /** Waits until the page has finished loading its data. */
  async loaded(): Promise<void> {
    await this.page.locator('.content[aria-busy="false"]').waitFor();
  }

  /** The text of one of the key figures at the top. */
  async figure(name: FigureName): Promise<string> {
    return (await this.page.locator(`.figure.${name} .value`).textContent()) ?? '';
  }

  async number(name: FigureName): Promise<number> {
    return numberIn(await this.figure(name));
  }

  /** The bars by category. */
  async categories(): Promise<Distribution> {
    const rows = await this.page.locator('.distribution .bars tbody tr').all();
    const entries = rows.map(async (row) => [
      await row.getAttribute('data-key'),
      numberIn((await row.locator('td.number').first().textContent()) ?? ''),
    ]);
    return Object.fromEntries(await Promise.all(entries));
  }

  /** The file that the export menu of a panel downloads: `PNG` or `CSV`. */
  async downloaded(panel: string, kind: string): Promise<{ name: string; content: Buffer }> {
    await this.page.locator(panel).getByRole('button', { name: 'Export' }).click();
    const [download] = await Promise.all([
      this.page.waitForEvent('download'),
      this.page.getByText(`Download ${kind}`).click(),
    ]);
    return { name: download.suggestedFilename(), content: await buffer(await download.createReadStream()) };
  }

  /**
   * Waits for something that is shown for two seconds only: the page itself looks for it, because this process may pause.
   * `isShown` is an expression.
   */
  async untilShown(isShown: string, act: () => Promise<void>): Promise<void> {
    // Not the promise itself, for which `evaluate` would wait.
    await this.page.evaluate(`void (window.wasShown = new Promise((resolve) => {
      const look = () => (${isShown}) && resolve(null);
      const changes = { subtree: true, childList: true, characterData: true, attributes: true };
      new MutationObserver(look).observe(document.body, changes);
    }))`);
    await act();
    await this.page.evaluate('window.wasShown');
  }

  /** The command that the export menu of a panel copies: `curl` or `command line`. */
  async copied(panel: string, kind: string): Promise<string> {
    await this.page
      .context()
      .grantPermissions(['clipboard-read', 'clipboard-write'], { origin: this.address });
    await this.page.locator(panel).getByRole('button', { name: 'Export' }).click();
    await this.untilShown(`document.body.innerText.includes('Copied')`, () =>
      this.page.getByText(`Copy as ${kind}`).click(),
    );
    await this.page.keyboard.press('Escape');
    return this.page.evaluate<string>('navigator.clipboard.readText()');
  }
}

/** Headers that the console sends with every change. */
export const CONSOLE = { 'X-Wafstat-Console': '1', 'Content-Type': 'application/json' };

/** A new, empty installation. */
export class ConsoleService extends ConsoleFixture {
  sandbox!: Sandbox;
  installation!: Installation;
  server!: Server;
  api!: Api;

  async start(): Promise<void> {
    this.sandbox = new Sandbox();
    ({ installation: this.installation, server: this.server, api: this.api } = await this.sandbox.service());
    await this.visit(this.server.address);
  }

  override async stop(): Promise<void> {
    try {
      await super.stop();
    } finally {
      await this.sandbox.clear();
    }
  }

  /** Signs in through the page, by default as the administrator. */
  async enter(path: string, account: Account = this.installation): Promise<void> {
    await this.page.goto(path);
    await signIn(this.page, account);
    await this.page.getByRole('button', { name: 'Sign out' }).waitFor();
  }

  async signOut(): Promise<void> {
    await this.page.getByText('Sign out').click();
    await this.page.getByRole('button', { name: 'Sign in' }).waitFor();
  }

  /** Adds a user with the role `reader` in the project. */
  async addUser(name: string, access: string): Promise<Account> {
    const { project_id, domain } = this.installation;
    const options = ['--access', access, '--role', 'reader', '--project', project_id];
    const created = await this.sandbox.runJson<{ password: string }>('user', 'add', name, ...options);
    return { user: name, domain, password: created.password };
  }

  /** Signs in without a browser and returns the cookie. */
  async session({ user, domain, password }: Account): Promise<string> {
    const body = JSON.stringify({ user, domain, password });
    const request = { method: 'POST', headers: CONSOLE, body };
    const response = await call(this.server.address, '/console/api/session', request);
    expect(response.status).toBe(201);
    return String(response.headers['set-cookie']?.[0]).split(';')[0] ?? '';
  }
}

export function describeDemo(name: string, define: (demo: DemoConsole) => void): void {
  describeFixture(name, () => new DemoConsole(), define);
}

export function describeService(name: string, define: (service: ConsoleService) => void): void {
  describeFixture(name, () => new ConsoleService(), define);
}

function describeFixture<F extends DemoConsole | ConsoleService>(
  name: string,
  create: () => F,
  define: (fixture: F) => void,
): void {
  describe.skipIf(!HAS_BROWSER)(name, () => {
    const fixture = create();
    beforeAll(() => fixture.open());
    afterAll(() => fixture.close());
    beforeEach(() => fixture.start());
    afterEach(async ({ task }) => {
      if (task.result?.state === 'fail')
        console.error(
          `The page of the failed test: ${await fixture.page.locator('body').innerText().catch(String)}`,
        );
      await fixture.stop();
    });
    define(fixture);
  });
}

export async function signIn(page: Page, account: Account): Promise<void> {
  await page.getByLabel('User').fill(account.user);
  await page.getByLabel('Domain').fill(account.domain);
  await page.getByLabel('Password').fill(account.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

export function numberIn(text: string): number {
  return Number(text.replaceAll(',', ''));
}
