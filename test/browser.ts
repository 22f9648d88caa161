/** A real browser on the console: Debian's Chromium, driven from outside. */
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const PROGRAM = '/usr/bin/chromium';

/** Elsewhere than on a CI machine, tests that need the browser are left out when it is not there. */
export const HAS_BROWSER = existsSync(PROGRAM) || process.env.CI === 'true';

if (!HAS_BROWSER) {
  console.warn(`${PROGRAM} is not there, so the console is not tested: apt-get install chromium`);
}

export function openBrowser(): Promise<Browser> {
  return chromium.launch({
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
  /** What must not be there when a test ends: errors of scripts, and requests to anywhere else. */
  complaints: string[];
  close(): Promise<void>;
}

/** A fresh visitor, without cookies, on a clock at UTC. */
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
    // A refused call is logged by the browser; whether it should have been refused is for the test to say.
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
