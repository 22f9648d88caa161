/** Pages of other origins in Chromium, which use the client with a token and with an access key. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { createClient, WafstatError } from '@wafstat/client';
import type { signedFetch } from '@wafstat/signer';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { call } from './api.ts';
import { HAS_BROWSER } from './console-setup.ts';
import { type Installation, KEEP_ALL, Sandbox, type Server } from './sandbox.ts';

const TIME = Date.UTC(2026, 0, 1, 12);
const RANGE = { from: TIME, to: TIME + 60_000 };

const sandbox = new Sandbox();
let pages: HttpServer[];
let allowed: string;
let other: string;
let installation: Installation;
let server: Server;
let key: { access: string; secret: string };
let browser: Browser;

/** A page as others write it: with the packages as they are installed. */
const PAGE = `<!doctype html><title>page</title><script type="module">
import { createClient } from '/client/index.js';
import { signedFetch } from '/signer/index.js';
Object.assign(window, { createClient, signedFetch });
</script>`;

/** What the script of the page has set. */
interface PageWindow {
  createClient: typeof createClient;
  signedFetch: typeof signedFetch;
}

async function servePages(): Promise<HttpServer> {
  const started = createServer(({ url = '' }, response) => {
    const [, name, file] = /^\/(client|signer)\/([a-z-]+\.js)$/.exec(url) ?? [];
    if (name === undefined) {
      response.writeHead(200, { 'Content-Type': 'text/html' }).end(PAGE);
      return;
    }
    const script = readFileSync(new URL(`../packages/${name}/dist/${file}`, import.meta.url));
    response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(script);
  });
  await once(started.listen(0, '127.0.0.1'), 'listening');
  return started;
}

describe.skipIf(!HAS_BROWSER)('a page of another origin', () => {
  beforeAll(async () => {
    pages = [await servePages(), await servePages()];
    [allowed = '', other = ''] = pages.map(
      (one) => `http://127.0.0.1:${(one.address() as AddressInfo).port}`,
    );
    const origins = ['--cors-origin', 'https://app.example.com', '--cors-origin', `${allowed}/`];
    ({ installation, server } = await sandbox.service(...KEEP_ALL, ...origins));
    key = await sandbox.runJson('key', 'add', '--user', 'admin');
    const lines = [{ time: TIME, host: 'a.example', attack: 'sqli', count: 7 }];
    await sandbox.ingest(installation.project_id, lines, ...KEEP_ALL);
    browser = await chromium.connect(inject('browser'));
  });
  afterAll(async () => {
    await browser?.close();
    for (const one of pages ?? []) one.close();
    await sandbox.clear();
  });

  async function inPage<T>(origin: string, work: (page: Page) => Promise<T>): Promise<T> {
    const page = await browser.newPage();
    try {
      await page.goto(origin);
      await page.waitForFunction(() => 'createClient' in globalThis);
      return await work(page);
    } finally {
      await page.close();
    }
  }

  const given = () => ({ url: server.address, installation, key, range: RANGE });

  test('uses the client with a password: the token is in a header, and errors have their message', async () => {
    const result = await inPage(allowed, (page) =>
      page.evaluate(async ({ url, installation: { user, password, domain, project_id }, range }) => {
        const { createClient } = globalThis as unknown as PageWindow;
        const credentials = { user, password, domain };
        const client = createClient({ url, projectId: project_id, credentials });
        const { attack_num } = await client.attackCount(range);
        const { total, items } = await client.hosts();
        const pushed = await client.ingest('{"time":1767268800000,"request":false,"attack":"xss"}');
        const error = await client.attackCount({ from: 2, to: 1 }).catch((failure: object) => failure);
        return { attack_num, total, hosts: items.length, accepted: pushed.accepted, error: { ...error } };
      }, given()),
    );
    expect(result).toMatchObject({
      attack_num: 7,
      total: 1,
      hosts: 1,
      accepted: 1,
      error: { status: 400, errorCode: 'WAF.1025', requestId: expect.any(String) },
    });
  });

  test('uses the client with an access key', async () => {
    const result = await inPage(allowed, (page) =>
      page.evaluate(async ({ url, installation: { project_id }, key, range }) => {
        const { createClient, signedFetch } = globalThis as unknown as PageWindow;
        const client = createClient({ url, projectId: project_id, fetch: signedFetch(key), maxRetries: 0 });
        const { sqli } = await client.attackTypes({ ...range, timezone: 'Europe/Berlin' });
        return { sqli, total: (await client.hosts()).total };
      }, given()),
    );
    expect(result).toEqual({ sqli: 7, total: 1 });
  });

  test('gets nothing if the operator has not allowed it', async () => {
    const result = await inPage(other, (page) =>
      page.evaluate(async ({ url, installation: { project_id }, range }) => {
        const { createClient } = globalThis as unknown as PageWindow;
        const options = { url, projectId: project_id, credentials: { token: 'x' }, maxRetries: 0 };
        return createClient(options)
          .attackCount(range)
          .catch(({ name, status }: WafstatError) => ({ name, status }));
      }, given()),
    );
    expect(result).toEqual({ name: 'WafstatError', status: undefined });
  });

  test('never sends cookies, and not to the console', async () => {
    const preflight = (path: string, origin: string) =>
      call(server.address, path, {
        method: 'OPTIONS',
        headers: { Origin: origin, 'Access-Control-Request-Method': 'GET' },
      });
    const { status, headers } = await preflight('/v1/p/waf/event/timeline', allowed);
    expect(status).toBe(204);
    expect(headers).toMatchObject({ 'access-control-allow-origin': allowed, vary: 'Origin' });
    expect(headers['access-control-allow-credentials']).toBeUndefined();
    for (const [path, origin] of [
      ['/console/api/session', allowed],
      ['/v1/p/waf/event/timeline', other],
      ['/v1/p/waf/event/timeline', 'null'],
      ['/v1/p/waf/event/timeline', `${allowed}0`],
    ] as const) {
      const refused = await preflight(path, origin);
      expect([refused.status, refused.headers['access-control-allow-origin']]).toEqual([405, undefined]);
    }
    const plain = await call(server.address, '/healthz', { headers: { Origin: other } });
    expect([plain.status, plain.headers['access-control-allow-origin']]).toEqual([200, undefined]);
  });
});

test.each([
  '*',
  'app.example.com',
  'https://a.example/path',
  'https://u@a.example',
  'null',
  'ftp://a.example',
])('%s is not an origin', async (origin) => {
  const { status, stderr } = await sandbox.run(['serve', '--data', sandbox.data, '--cors-origin', origin]);
  expect(status).toBe(2);
  expect(stderr).toContain('but must be an origin like https://app.example.com');
});
