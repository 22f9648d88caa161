/** The console in Debian's Chromium, driven by Playwright. */
import { existsSync } from 'node:fs';
import {
  type Browser,
  type BrowserContextOptions,
  type BrowserServer,
  chromium,
  type Page,
} from 'playwright-core';

const PROGRAM = '/usr/bin/chromium';

/** Without a browser, console tests are skipped, except in CI. */
export const HAS_BROWSER = existsSync(PROGRAM) || process.env.CI === 'true';

if (!HAS_BROWSER) {
  console.warn(`${PROGRAM} is missing, so the console tests are skipped: apt-get install chromium`);
}

export function launchBrowser(): Promise<BrowserServer> {
  return chromium.launchServer({
    executablePath: PROGRAM,
    args: [
      '--no-sandbox',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-gpu',
    ],
  });
}

export interface Visit {
  page: Page;
  /** Script errors and requests to other origins; empty when a test passes. */
  complaints: string[];
  close(): Promise<void>;
}

/** A new browser context: no cookies, time zone UTC. */
export async function visit(
  browser: Browser,
  address: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
  const context = await browser.newContext({
    timezoneId: 'UTC',
    locale: 'en-GB',
    viewport: { width: 1280, height: 900 },
    baseURL: address,
    ...options,
  });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    // The browser logs every error status; whether it is right is for the test to decide.
    const refused = message.text().startsWith('Failed to load resource');
    if (message.type() === 'error' && !refused) complaints.push(message.text());
  });
  page.on('request', (request) => {
    const { origin } = new URL(request.url());
    if (origin !== address && !/^(blob|data):/.test(request.url()))
      complaints.push(`request to ${request.url()}`);
  });
  return { page, complaints, close: () => context.close() };
}

export async function signIn(
  page: Page,
  account: { user: string; domain: string; password: string },
): Promise<void> {
  await page.getByLabel('User').fill(account.user);
  await page.getByLabel('Domain').fill(account.domain);
  await page.getByLabel('Password').fill(account.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}
