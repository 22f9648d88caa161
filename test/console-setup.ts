/** Global setup: one browser (Chromium of Debian) and one demo for all tests of a run that need them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import type { TestProject } from 'vitest/node';
import { BROWSERS, findBrowser } from '../scripts/components.mjs';
import { Process } from './process.ts';

const PROGRAM = findBrowser();

/** Without a browser, console tests are skipped, except in CI. */
export const HAS_BROWSER = PROGRAM !== undefined || process.env.CI === 'true';

if (!HAS_BROWSER) {
  console.warn('no Chromium, so the console tests are skipped: apt-get install chromium-headless-shell');
}

const DISABLED = ['background-networking', 'component-update', 'sync', 'gpu'];

export interface Demo {
  /** The data directory. */
  directory: string;
  /** What it printed until it was ready. */
  stderr: string;
  address: string;
  project_id: string;
  account: { user: string; domain: string; password: string };
}

declare module 'vitest' {
  export interface ProvidedContext {
    /** WebSocket endpoint of the browser. */
    browser: string;
    demo: Demo;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-demo-'));
  const data = join(directory, 'data');
  const process = new Process(['demo', '--data', data, '--listen', '127.0.0.1:0']);
  const args = ['--no-sandbox', ...DISABLED.map((name) => `--disable-${name}`)];
  const stop = async () => {
    await process.kill();
    rmSync(directory, { recursive: true });
  };
  try {
    const executablePath = PROGRAM ?? BROWSERS[0] ?? '';
    const launching = HAS_BROWSER
      ? chromium.launchServer({ executablePath, args, timeout: 120_000 })
      : undefined;
    const [browser, demo] = await Promise.all([launching, readDemo(process, data)]);
    if (browser) project.provide('browser', browser.wsEndpoint());
    project.provide('demo', demo);
    return async () => {
      await Promise.all([browser?.close(), stop()]);
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** What the demo prints when it is ready. */
async function readDemo(process: Process, directory: string): Promise<Demo> {
  // Generating the traffic takes 6 s of a core, and much longer on a busy machine.
  const listens = await process.line('wafstat listens on ', 300_000);
  const address = listens.slice('wafstat listens on '.length);
  const [, user = '', domain = '', password = ''] =
    /user (\S+), domain (\S+), password (\S+)/.exec(await process.line('login')) ?? [];
  const project_id = (await process.line('project')).split(/\s+/)[1] ?? '';
  return { directory, stderr: process.stderr, address, project_id, account: { user, domain, password } };
}
