import { readdirSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { getPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { parserSetup } from '../ingest/chunk-parser.ts';
import { ParserThreads } from '../ingest/parser-threads.ts';
import { Pipeline } from '../ingest/pipeline.ts';
import { type Batch, StoreDamaged, StoreUnavailable } from '../store/store.ts';
import { ingestAll, Outage } from './ingest.ts';
import { IngestSummary } from './ingest-summary.ts';
import { runProgram } from './program.ts';

const NOW = Date.now();
const LINE = JSON.stringify({ time: NOW, host: 'shop.example' }).padEnd(999);

function isLinkTo(link: string, path: string): boolean {
  try {
    return readlinkSync(link) === path;
  } catch {
    return false;
  }
}

async function run(argv: string[], now = () => NOW) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const stop = new AbortController().signal;
  const status = await runProgram(argv, { stdin: Readable.from([]), stdout, stderr, env: {}, now, stop });
  stdout.end();
  stderr.end();
  return { status, out: await text(stdout), err: await text(stderr) };
}

test('ingest warns once if a file is truncated and written again while it is read', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'wafstat-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const data = ['--data', join(directory, 'data')];
  expect((await run(['init', ...data, '--json'])).status).toBe(0);
  expect((await run(['project', 'add', 'shop', ...data])).status).toBe(0);

  const file = join(directory, 'access.log');
  writeFileSync(file, `old ${LINE}\n`.repeat(20_000));
  // The clock is read before the file is opened and while it is read.
  const isOpen = () => readdirSync('/proc/self/fd').some((fd) => isLinkTo(join('/proc/self/fd', fd), file));
  let isChanged = false;
  const now = () => {
    if (!isChanged && isOpen()) {
      writeFileSync(file, `${LINE}\n`.repeat(3));
      isChanged = true;
    }
    return NOW;
  };
  const options = [...data, '--project', 'shop', '--format', 'events'];
  const priority = getPriority();
  const { status, out, err } = await run(['ingest', ...options, file], now);
  expect(err.split('\n').filter((line) => line.startsWith('wafstat:'))).toEqual([
    `wafstat: ${file}: the file was truncated or overwritten while it was read: ` +
      'lines that were not read before are lost, unless you ingest a copy',
  ]);
  expect(out).toMatch(/^accepted +3$/m);
  expect(status).toBe(0);
  // This process is not that of the command.
  expect(getPriority()).toBe(priority);
});

/** Ingests files into a store in memory. `admit` may throw instead of appending a batch. */
async function ingestInto(admit: (batch: Batch) => void) {
  const directory = await mkdtemp(join(tmpdir(), 'wafstat-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const store = memoryStore(() => NOW);
  const append = store.append.bind(store);
  /** The times of the events, in the order in which they were counted. */
  const counted: number[] = [];
  store.append = async (batch) => {
    admit(batch);
    const appended = await append(batch);
    if (appended.kind === 'appended') counted.push(...batch.events.map(({ time }) => time));
    return appended;
  };
  const reader = { format: 'events' as const };
  const limits = { retentionMs: 86_400_000, hostsMax: 10 };
  const stderr = new PassThrough();
  const io = {
    ...{ stdin: Readable.from([]), stdout: new PassThrough(), stderr, env: {}, now: () => NOW },
    stop: new AbortController().signal,
  };
  const left = { bytes: 0 };
  const ingestFiles = (contents: (string | Buffer)[]) => {
    const files = contents.map((content, i) => {
      const path = join(directory, `${i}.log`);
      writeFileSync(path, content);
      return { path, bytes: statSync(path).size, isRegular: true };
    });
    left.bytes = files.reduce((sum, { bytes }) => sum + bytes, 0);
    return ingestAll(files, {
      ingest: { project: 'p', source: { name: 's', format: 'events' }, reader },
      pipeline: new Pipeline(store, limits, io.now),
      parsers: new ParserThreads(parserSetup(reader, limits), 0),
      outage: new Outage(),
      summary: new IngestSummary(io, limits),
      ...{ store, left, io },
    });
  };
  const errorOutput = () => String(stderr.read() ?? '');
  return { counted, ingestFiles, errorOutput, left };
}

const event = (number: number) => `${JSON.stringify({ time: NOW - 100_000 + number, host: 'a.example' })}\n`;
const numbers = (count: number) => Array.from({ length: count }, (_, i) => i);
const timeOf = (number: number) => NOW - 100_000 + number;
const ZIP = Buffer.from('504b0304140000000800', 'hex');

test('small files are counted in order if one between them fails, and if the store does', async () => {
  let outages = 3;
  const { counted, ingestFiles, errorOutput, left } = await ingestInto(({ events }) => {
    // Not for all, so that later files could overtake.
    if ((events[0]?.time ?? 0) <= timeOf(20) && outages-- > 0) throw new StoreUnavailable('no store');
  });
  // Compressed ones take longer to read than the plain ones after them.
  const contents = numbers(200).map((i) => (i % 10 === 0 ? gzipSync(event(i)) : event(i)));
  const errors = await ingestFiles(contents.toSpliced(1, 0, ZIP));
  expect(errors.map(({ message }) => message)).toEqual([expect.stringContaining('is a zip archive')]);
  // Those that the store already had when it failed cannot be called back.
  const overtaking = counted.slice(0, counted.indexOf(timeOf(0)));
  expect(overtaking.length).toBeLessThan(64);
  const others = counted.slice(overtaking.length);
  expect(others).toEqual(others.toSorted((a, b) => a - b));
  expect(counted.toSorted((a, b) => a - b)).toEqual(numbers(200).map(timeOf));
  expect(errorOutput()).toBe('wafstat: no store; retrying\n');
  // The archive was not read.
  expect(left.bytes).toBe(ZIP.length);
});

test('small files are counted in order after one of them that fails early', async () => {
  const { counted, ingestFiles } = await ingestInto(() => {});
  await ingestFiles([gzipSync(event(0)), ZIP, event(1), event(2)]);
  expect(counted).toEqual([0, 1, 2].map(timeOf));
});

test('an error that ends the run is thrown, whatever other files do at the same time', async () => {
  let isDamaged = false;
  const { ingestFiles } = await ingestInto(({ events }) => {
    if (isDamaged && events[0]?.time === timeOf(0)) throw new StoreDamaged('here');
  });
  const large = event(99).repeat(1_500);
  const before = numbers(20).map((i) => gzipSync(event(i + 1)));
  expect(await ingestFiles([...before, large])).toEqual([]);
  isDamaged = true;
  await expect(ingestFiles([event(0), ...before, large])).rejects.toThrow(StoreDamaged);
});
