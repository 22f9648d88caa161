/** One browser and one demo for all console tests of a run. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { HAS_BROWSER, launchBrowser } from './browser.ts';
import { Process } from './process.ts';

export interface Demo {
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
  if (!HAS_BROWSER) return async () => {};
  const folder = mkdtempSync(join(tmpdir(), 'wafstat-demo-'));
  const process = new Process(['demo', '--data', join(folder, 'data'), '--listen', '127.0.0.1:0']);
  const [browser, demo] = await Promise.all([launchBrowser(), readDemo(process)]);
  project.provide('browser', browser.wsEndpoint());
  project.provide('demo', demo);
  return async () => {
    await Promise.all([browser.close(), process.kill()]);
    rmSync(folder, { recursive: true });
  };
}

/** What the demo prints when it is ready. */
async function readDemo(process: Process): Promise<Demo> {
  const address = (await process.line('wafstat listens on ')).slice('wafstat listens on '.length);
  const [, user = '', domain = '', password = ''] =
    /user (\S+), domain (\S+), password (\S+)/.exec(await process.line('login')) ?? [];
  const project_id = (await process.line('project')).split(/\s+/)[1] ?? '';
  return { address, project_id, account: { user, domain, password } };
}
