/**
 * How long the console takes to draw, with an empty cache, 1,000 hosts and 90 days of data.
 *
 *   node bench/console.mjs [DIRECTORY]      keeps the data in DIRECTORY, to measure again
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { BROWSERS, findBrowser } from '../scripts/components.mjs';
import { server as serverPackage } from './paths.mjs';
import { Processes } from './processes.mjs';

const HOSTS = 1_000;
const DAYS = 90;
const HOUR_MS = 3_600_000;
const ROUNDS = 5;
const PROGRAM = join(serverPackage, 'bin/wafstat.js');
const CATEGORIES = ['xss', 'sqli', 'cmdi', 'lfi', 'robot', 'vuln'];
const account = { user: 'admin', domain: 'default', password: 'benchmark' };

const kept = process.argv[2];
const directory = kept ?? mkdtempSync(join(tmpdir(), 'wafstat-console-'));
const data = join(directory, 'data');
if (!existsSync(data)) fill();
const processes = new Processes();
const { address } = await processes.start(process.execPath, [
  PROGRAM,
  'serve',
  '--data',
  data,
  '--listen',
  '127.0.0.1:0',
  '--log-level',
  'warn',
]);
const browser = await chromium.launch({
  executablePath: findBrowser() ?? BROWSERS[0],
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  const cookies = await signIn();
  const pages = {
    'dashboard, 24 hours': ['/console/', '.pane.attacks canvas'],
    'dashboard, 90 days': ['/console/?range=90days', '.pane.attacks canvas'],
    'dashboard, 90 days, everything': ['/console/?range=90days&live=off', '.content[aria-busy=false]'],
    'overview, 90 days': ['/console/overview?range=90days&live=off', '.tile .sparkline'],
  };
  for (const [name, [path, drawn]] of Object.entries(pages)) {
    const times = [];
    for (let i = 0; i < ROUNDS; i++) times.push(await load(path, drawn, cookies));
    times.sort((a, b) => a - b);
    console.log(`${name.padEnd(32)} ${Math.round(times[Math.floor(ROUNDS / 2)])} ms`);
  }
} finally {
  await browser.close();
  await processes.stop();
  if (kept === undefined) rmSync(directory, { recursive: true });
}

function fill() {
  const { project_id } = JSON.parse(
    execFileSync(
      process.execPath,
      [PROGRAM, 'init', '--data', data, '--user', account.user, '--password-stdin', '--json'],
      {
        encoding: 'utf8',
        input: account.password,
      },
    ),
  );
  const start = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - DAYS * 24 * HOUR_MS;
  for (let day = 0; day < DAYS; day++) {
    const lines = [];
    for (let hour = 0; hour < 24; hour++) {
      for (let host = 0; host < HOSTS; host++) {
        const time = start + (day * 24 + hour) * HOUR_MS + ((host * 7_919) % HOUR_MS);
        const attack =
          (host + hour + day) % 5 === 0 ? { attack: CATEGORIES[(host + day) % CATEGORIES.length] } : {};
        lines.push(
          JSON.stringify({ time, host: `www${host}.example.com`, count: 1 + (host % 50), ...attack }),
        );
      }
    }
    const args = [PROGRAM, 'ingest', '--data', data, '--project', project_id, '--format', 'events', '-'];
    execFileSync(process.execPath, args, {
      input: `${lines.join('\n')}\n`,
      stdio: ['pipe', 'ignore', 'inherit'],
    });
  }
}

async function signIn() {
  const response = await fetch(`${address}/console/api/session`, {
    method: 'POST',
    headers: { 'X-Wafstat-Console': '1', 'Content-Type': 'application/json' },
    body: JSON.stringify(account),
  });
  if (!response.ok) throw new Error(await response.text());
  return response.headers.getSetCookie().map((cookie) => {
    const [, name, value] = /^([^=]+)=([^;]+)/.exec(cookie) ?? [];
    return { name, value, url: address };
  });
}

/** A new browser context has an empty cache. */
async function load(path, drawn, cookies) {
  const context = await browser.newContext({ viewport: { width: 1_440, height: 900 }, timezoneId: 'UTC' });
  await context.addCookies(cookies);
  const page = await context.newPage();
  await page.goto('about:blank');
  const started = performance.now();
  await page.goto(`${address}${path}`, { waitUntil: 'commit' });
  await page.locator(drawn).first().waitFor();
  const ms = performance.now() - started;
  await context.close();
  return ms;
}
