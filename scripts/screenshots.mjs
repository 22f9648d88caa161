/** Starts the demo and takes the screenshots of README.md and docs/: `npm run screenshots`. */

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { BROWSERS, findBrowser } from './components.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const PROGRAM = join(root, 'packages/server/bin/wafstat.js');
const DESKTOP = { width: 1_440, height: 900 };
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

/** The names are those in the texts. */
const SHOTS = {
  'console-light': { path: '/console/?range=7days' },
  'console-dark': { path: '/console/?range=7days', colorScheme: 'dark' },
  'console-hosts-compared': { path: '/console/?range=7days&by=host' },
  'console-overview': { path: '/console/overview?range=7days' },
  'console-attack': { path: '/console/?range=24hours&category=sqli', click: '.attacks-list tbody tr' },
  'console-phone': { path: '/console/?range=7days', ...PHONE },
};

const directory = mkdtempSync(join(tmpdir(), 'wafstat-screenshots-'));
const demo = spawn(
  process.execPath,
  [PROGRAM, 'demo', '--data', join(directory, 'data'), '--listen', '127.0.0.1:0'],
  {
    stdio: ['ignore', 'pipe', 'inherit'],
  },
);
const browser = await chromium.launch({
  executablePath: findBrowser() ?? BROWSERS[0],
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  const { address, account } = await demoOf(demo.stdout);
  for (const [name, { path, click, ...device }] of Object.entries(SHOTS)) {
    const context = await browser.newContext({
      viewport: DESKTOP,
      colorScheme: 'light',
      ...device,
      deviceScaleFactor: 2,
      reducedMotion: 'reduce',
      timezoneId: 'Europe/Berlin',
    });
    const page = await context.newPage();
    await page.goto(address + path);
    await page.getByLabel('User').fill(account.user);
    await page.getByLabel('Password').fill(account.password);
    await page.getByText('Sign in', { exact: true }).click();
    await page.locator('.content[aria-busy="false"]').waitFor();
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    if (click !== undefined) {
      await page.locator('#attacks').scrollIntoViewIfNeeded();
      await page.locator(click).first().click();
      await page.locator('dialog .matched-rules').waitFor();
    }
    await page.screenshot({ path: join(root, 'docs/images', `${name}.png`) });
    await context.close();
    console.log(`docs/images/${name}.png`);
  }
} finally {
  await browser.close();
  demo.kill();
  await new Promise((resolve) => demo.once('exit', resolve));
  rmSync(directory, { recursive: true });
}

/** What the demo prints when it is ready. */
async function demoOf(output) {
  let address = '';
  for await (const line of createInterface({ input: output })) {
    address = /^wafstat listens on (\S+)/.exec(line)?.[1] ?? address;
    const [, user, password] = /user (\S+), domain \S+, password (\S+)/.exec(line) ?? [];
    if (user !== undefined) {
      output.resume();
      return { address, account: { user, password } };
    }
  }
  throw new Error('the demo has ended');
}
