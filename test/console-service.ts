/** The console of a new, empty installation for each test. */
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject } from 'vitest';
import { type Api, call } from './api.ts';
import { HAS_BROWSER, signIn, type Visit, visit } from './browser.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

export interface Account {
  user: string;
  domain: string;
  password: string;
}

/** Headers that the console sends with every change. */
export const CONSOLE = { 'X-Wafstat-Console': '1', 'Content-Type': 'application/json' };

export class ConsoleService {
  sandbox!: Sandbox;
  installation!: Installation;
  server!: Server;
  api!: Api;
  page!: Page;
  #browser!: Browser;
  #visit!: Visit;

  async openBrowser(): Promise<void> {
    this.#browser = await chromium.connect(inject('browser'));
  }

  async closeBrowser(): Promise<void> {
    await this.#browser?.close();
  }

  async start(): Promise<void> {
    this.sandbox = new Sandbox();
    ({ installation: this.installation, server: this.server, api: this.api } = await this.sandbox.service());
    this.#visit = await visit(this.#browser, this.server.address);
    this.page = this.#visit.page;
  }

  async stop(): Promise<void> {
    await this.#visit.close();
    await this.sandbox.clear();
    expect(this.#visit.complaints).toEqual([]);
  }

  /** Signs in through the page, by default as the administrator. */
  async enter(path: string, account: Account = this.installation): Promise<void> {
    await this.page.goto(path);
    await signIn(this.page, account);
    await this.page.getByRole('button', { name: 'Sign out' }).waitFor();
  }

  /** Adds a user with the role `reader` in the project. */
  async addUser(name: string, access: string): Promise<Account> {
    const { project_id, domain } = this.installation;
    const options = ['--access', access, '--role', 'reader', '--project', project_id];
    const made = await this.sandbox.runJson<{ password: string }>('user', 'add', name, ...options);
    return { user: name, domain, password: made.password };
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

export function describeService(name: string, define: (service: ConsoleService) => void): void {
  describe.skipIf(!HAS_BROWSER)(name, () => {
    const service = new ConsoleService();
    beforeAll(() => service.openBrowser());
    afterAll(() => service.closeBrowser());
    beforeEach(() => service.start());
    afterEach(() => service.stop());
    define(service);
  });
}
