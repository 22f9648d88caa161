/** Files that are written to while they are counted: killed readers, rotation both ways, and how soon a line is seen. */
import { appendFileSync, copyFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, sum } from './api.ts';
import { eventually, type Process } from './process.ts';
import { Random } from './random.ts';
import { type Installation, Sandbox } from './sandbox.ts';

const START = Date.now() - 3_600_000;
const RANGE = `from=${START}&to=${START + 1_000_000}`;

let sandbox: Sandbox;
let installation: Installation;
let api: Api;
let log: string;
let written: number;

beforeEach(async () => {
  sandbox = new Sandbox();
  ({ installation, api } = await sandbox.service());
  log = sandbox.path('access.log');
  written = 0;
});

afterEach(() => sandbox.clear());

function follow(): Process {
  return sandbox.start(['follow', '--data', sandbox.data, '--project', installation.project, log]);
}

/** Lines that differ from each other, as those of a log do; every third one is an attack. */
function lines(count: number): string {
  let text = '';
  for (let i = 0; i < count; i++) {
    const attack = written % 3 === 0 ? ',"attack":"sqli"' : '';
    text += `{"time":${START + (written % 1_000_000)},"host":"h${written % 5}.example.com","line":${written}${attack}}\n`;
    written++;
  }
  return text;
}

async function requests(): Promise<number> {
  return sum((await api.timeline(RANGE)).requests);
}

async function expectAllCounted(): Promise<void> {
  await eventually(async () => ((await requests()) >= written ? true : undefined), `${written} requests`);
  const timeline = await api.timeline(RANGE);
  expect(sum(timeline.requests)).toBe(written);
  expect(sum(timeline.attacks)).toBe(Math.ceil(written / 3));
  expect(sum(await api.distribution(RANGE))).toBe(Math.ceil(written / 3));
}

test('a line is in the answers within a second of being written', async () => {
  const following = follow();
  writeFileSync(log, lines(1));
  await expectAllCounted();
  const delays: number[] = [];
  for (let i = 0; i < 5; i++) {
    appendFileSync(log, lines(1));
    const before = performance.now();
    await expectAllCounted();
    delays.push(performance.now() - before);
  }
  // Not the slowest: the machine that runs the tests may be busy with something else for a moment.
  expect(delays.sort((a, b) => a - b)[2]).toBeLessThan(1_000);
  following.signal('SIGTERM');
  expect((await following.end()).status).toBe(0);
});

test('kill -9 of follow, 25 times at random moments: every line counts once', async () => {
  const random = new Random(1);
  writeFileSync(log, '');
  for (let i = 0; i < 25; i++) {
    const following = follow();
    const until = performance.now() + 200 + random.next() * 500;
    while (performance.now() < until) {
      const text = lines(random.integer(1, 2_000));
      // Half lines too: a writer's buffer ends anywhere.
      const cut = random.integer(0, text.length);
      appendFileSync(log, text.slice(0, cut));
      await sleep(random.next() * 20);
      appendFileSync(log, text.slice(cut));
    }
    await following.kill();
  }
  const last = follow();
  await expectAllCounted();
  await last.kill();
});

test('rotation by rename and by copytruncate under load loses nothing', async () => {
  const random = new Random(2);
  const following = follow();
  writeFileSync(log, lines(1));
  await expectAllCounted();
  for (let rotation = 1; rotation <= 6; rotation++) {
    for (let i = 0; i < 20; i++) {
      appendFileSync(log, lines(random.integer(1, 300)));
      await sleep(random.next() * 20);
    }
    if (rotation % 2 === 1) {
      renameSync(log, `${log}.${rotation}`);
      // The web server goes on writing to the renamed file until it is told.
      appendFileSync(`${log}.${rotation}`, lines(50));
      writeFileSync(log, '');
      appendFileSync(`${log}.${rotation}`, lines(50));
    } else {
      copyFileSync(log, `${log}.${rotation}`);
      truncateSync(log);
    }
  }
  appendFileSync(log, lines(10));
  await expectAllCounted();
  await following.kill();
});

test('a rotation while nobody followed is made up for', async () => {
  writeFileSync(log, lines(1_000));
  const first = follow();
  await expectAllCounted();
  await first.kill();
  appendFileSync(log, lines(500));
  renameSync(log, `${log}.1`);
  writeFileSync(log, lines(300));
  const second = follow();
  await expectAllCounted();
  await second.kill();
});
