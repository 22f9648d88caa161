import {
  appendFileSync,
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { type Store, StoreUnavailable } from '../store/store.ts';
import { openLog } from './byte-stream.ts';
import { type FileIngest, ingestFile } from './file.ts';
import { type FileSystem, NODE_FILES, type OpenFile } from './file-system.ts';
import { Follower } from './follow.ts';
import { LINE_BYTES_MAX } from './lines.ts';
import { LinesInFuture, Pipeline } from './pipeline.ts';

const NOW = Date.UTC(2026, 6, 1);
let directory: string;
let path: string;
let store: Store;
let written: number;
let warnings: string[];
const clock = { now: NOW };

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-follow-'));
  path = join(directory, 'access.log');
  clock.now = NOW;
  store = memoryStore(() => clock.now);
  written = 0;
  warnings = [];
});

afterEach(() => rmSync(directory, { recursive: true }));

/** All lines are different, as in a log. */
function lines(count: number): string {
  return Array.from({ length: count }, () => `{"time":${NOW - 1_000},"line":${++written}}\n`).join('');
}

const ingest = {
  project: 'p',
  source: { name: 's', format: 'events' },
  reader: { format: 'events' as const },
};

function pipeline() {
  return new Pipeline(store, { retentionMs: 86_400_000, hostsMax: 10 }, () => clock.now);
}

function follower(
  file: FileIngest = ingest,
  holdsErrorLog = false,
  stop = new AbortController().signal,
  fs: FileSystem = NODE_FILES,
): Follower {
  return new Follower({
    path,
    holdsErrorLog,
    ingest: file,
    store,
    pipeline: pipeline(),
    now: () => clock.now,
    fs,
    stop,
    counted() {},
    warn: (message) => warnings.push(message),
  });
}

async function lookAll(one: Follower): Promise<void> {
  while (await one.look());
}

async function requests(): Promise<number> {
  return (await store.count({ project: 'p', edges: [0, NOW + 1], rows: 'timeline' }))[0][0] ?? 0;
}

test('a file created after the start is counted from its first line', async () => {
  const one = follower();
  await lookAll(one);
  writeFileSync(path, lines(3));
  await lookAll(one);
  expect(await requests()).toBe(3);
  appendFileSync(path, lines(2));
  await lookAll(one);
  expect(await requests()).toBe(5);
  await one.close();
});

test('a log that grows all the time is read in pauses, and one that is behind without them', async () => {
  let batches = 0;
  const { append } = store;
  store.append = (batch) => {
    batches++;
    // The log grows while each batch is counted.
    if (batches < 10) appendFileSync(path, lines(1));
    return append(batch);
  };
  const one = follower();
  writeFileSync(path, lines(3));
  expect(await one.look()).toBe(false);
  expect(batches).toBe(1);
  expect(await one.look()).toBe(false);
  expect(batches).toBe(2);
  appendFileSync(path, lines(LINE_BYTES_MAX / 20));
  expect(await one.look()).toBe(true);
  await lookAll(one);
  expect(await requests()).toBe(written - 1);
  await one.close();
});

test('an incomplete line is counted when the rest is written', async () => {
  const one = follower();
  const line = lines(1);
  writeFileSync(path, line.slice(0, 10));
  await lookAll(one);
  appendFileSync(path, line.slice(10));
  await lookAll(one);
  expect(await requests()).toBe(1);
  await one.close();
});

test('with other logs, an error log is counted one look later, through rotation and truncation', async () => {
  const auto = { ...ingest, reader: { format: 'auto' as const } };
  const one = follower(auto, true);
  await lookAll(one);
  expect(one.isErrorLog).toBe(false);
  const errorLines = (count: number) => {
    const lines = Array.from(
      { length: count },
      () => `2026/07/01 00:00:00 [error] 1#1: *${++written} line\n`,
    );
    return lines.join('');
  };
  const dropped = async () => (await store.sources('p'))[0]?.dropped.other_log_line ?? 0;
  writeFileSync(path, errorLines(3));
  await lookAll(one);
  expect([one.isErrorLog, await dropped()]).toEqual([true, 0]);
  appendFileSync(path, errorLines(2));
  await lookAll(one);
  expect(await dropped()).toBe(3);
  renameSync(path, `${path}.1`);
  appendFileSync(`${path}.1`, errorLines(2));
  writeFileSync(path, errorLines(4));
  await lookAll(one);
  expect(await dropped()).toBe(5);
  await lookAll(one);
  await lookAll(one);
  expect(await dropped()).toBe(11);
  copyFileSync(path, `${path}-20260701`);
  truncateSync(path);
  appendFileSync(path, errorLines(5));
  for (let looks = 0; looks < 3; looks++) await lookAll(one);
  expect(await dropped()).toBe(written);
  // All that is behind is read without pauses.
  appendFileSync(path, errorLines(LINE_BYTES_MAX / 16));
  for (let looks = 0; looks < 2; looks++) await lookAll(one);
  expect(await dropped()).toBe(written);
  await one.close();
});

test('another process resumes after a kill, and does not count ingested lines again', async () => {
  writeFileSync(path, lines(5));
  for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
  for (let i = 0; i < 4; i++) {
    appendFileSync(path, lines(3));
    const one = follower();
    await lookAll(one);
    await one.close();
  }
  expect(await requests()).toBe(17);
  for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
  expect(await requests()).toBe(17);
});

test('rotation by rename loses no line, even lines written to the renamed file', async () => {
  const one = follower();
  writeFileSync(path, lines(4));
  await lookAll(one);
  appendFileSync(path, lines(1));
  renameSync(path, `${path}.1`);
  await lookAll(one);
  appendFileSync(`${path}.1`, lines(2));
  await lookAll(one);
  writeFileSync(path, lines(3));
  appendFileSync(`${path}.1`, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(11);
  clock.now += 120_000;
  await lookAll(one);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(12);
  await one.close();
});

test('after copytruncate, unread lines are counted from the copy', async () => {
  const one = follower();
  writeFileSync(path, lines(4));
  await lookAll(one);
  appendFileSync(path, lines(2));
  copyFileSync(path, `${path}.1`);
  truncateSync(path);
  // More than before, so that the length does not reveal the truncation.
  appendFileSync(path, lines(20));
  await lookAll(one);
  expect(await requests()).toBe(26);
  await one.close();
});

/** Ends the next read of lines after `bytes`, and calls back before the rest is read. `lengthMin`: of a read of lines. */
async function interruptRead(bytes: number, callback: () => void, lengthMin = LINE_BYTES_MAX) {
  const handle = await open(path);
  const prototype = Object.getPrototypeOf(handle);
  await handle.close();
  const { read } = prototype;
  let count = 0;
  return vi.spyOn(prototype, 'read').mockImplementation(async function (this: unknown, ...args: unknown[]) {
    const [buffer, at, length, position] = args as [Buffer, number, number, number | null];
    // Shorter reads identify a file, or find out whether it has changed.
    const isOfLines = count > 0 || length >= lengthMin;
    if (isOfLines && ++count === 2) callback();
    return read.call(this, buffer, at, isOfLines && count === 1 ? bytes : length, position);
  });
}

test.each([
  ['counted in part', 4],
  ['new', 0],
])(
  'a log that is %s counts once if it is truncated and written again during a read',
  async (_what, counted) => {
    writeFileSync(path, lines(counted));
    const one = follower();
    await lookAll(one);
    appendFileSync(path, lines(9 - counted));
    const lineBytes = readFileSync(path).length / 9;
    const reads = await interruptRead(6 * lineBytes, () => {
      copyFileSync(path, `${path}.1`);
      written = 100;
      writeFileSync(path, lines(20));
    });
    try {
      await lookAll(one);
    } finally {
      reads.mockRestore();
    }
    await lookAll(one);
    expect(await requests()).toBe(29);
    expect((await store.sources('p'))[0]?.dropped).toEqual({});
    await one.close();
  },
);

test('a rotated file that is written again before its last read is not finished', async () => {
  writeFileSync(path, lines(2));
  const one = follower();
  await lookAll(one);
  renameSync(path, `${path}.1`);
  writeFileSync(path, lines(1));
  await lookAll(one);
  clock.now += 60_000;
  const handle = await open(path);
  const prototype = Object.getPrototypeOf(handle);
  await handle.close();
  // The file is read to its end, and its size is noted before the last read.
  const { stat } = prototype;
  const stats = vi.spyOn(prototype, 'stat').mockImplementationOnce(function (this: unknown) {
    writeFileSync(`${path}.1`, lines(5));
    return stat.call(this);
  });
  try {
    await one.look();
    expect(stats).toHaveBeenCalled();
  } finally {
    stats.mockRestore();
  }
  // The first look notices the change.
  for (let i = 0; i < 2; i++) await lookAll(one);
  expect(await requests()).toBe(2 + 1 + 5);
  expect(warnings).toEqual([]);
  await one.close();
});

test('a log that is emptied and filled again counts, even if all lines have the same end', async () => {
  const sameEnd = (count: number) => lines(count).replaceAll('}', `,"labels":"${'x'.repeat(300)}"}`);
  writeFileSync(path, sameEnd(2));
  const one = follower();
  await lookAll(one);
  // At the offset that was counted, another line ends.
  writeFileSync(path, sameEnd(3));
  await lookAll(one);
  expect(await requests()).toBe(5);
  expect(warnings).toEqual([expect.stringContaining('was truncated')]);
  await one.close();
});

test('a rotated file that is truncated and written again during a read counts once', async () => {
  writeFileSync(path, lines(1));
  const before = follower();
  await lookAll(before);
  await before.close();
  appendFileSync(path, lines(899));
  const content = readFileSync(path, 'utf8');
  const read = content.split('\n').slice(0, 600).join('\n').length + 1;
  renameSync(path, `${path}.1`);
  // Too old to be kept open.
  const minutesAgo = new Date(Date.now() - 600_000);
  utimesSync(`${path}.1`, minutesAgo, minutesAgo);
  writeFileSync(path, lines(1));
  const truncate = () => {
    written = 100;
    writeFileSync(`${path}.1`, lines(20));
  };
  // A rotated file is read in one piece.
  const reads = await interruptRead(read, truncate, content.length);
  const one = follower();
  try {
    await lookAll(one);
  } finally {
    reads.mockRestore();
  }
  await lookAll(one);
  // The last 300 lines before the truncation are lost.
  expect(await requests()).toBe(600 + 1 + 20);
  expect((await store.sources('p'))[0]?.dropped).toEqual({});
  await one.close();
});

const MINUTES_AGO = new Date(Date.now() - 600_000);

/** Sets file times to so long ago that files are not kept open, and directories are read only if they change. */
function age(...paths: string[]): void {
  for (const each of paths) utimesSync(each, MINUTES_AGO, MINUTES_AGO);
}

test('a rotated file that grows while it is read is read again, although its directory does not change', async () => {
  writeFileSync(path, lines(1));
  const before = follower();
  await lookAll(before);
  await before.close();
  rotate('numbered');
  appendFileSync(`${path}.1`, lines(2));
  age(`${path}.1`, directory);
  const { append } = store;
  store.append = (batch) => {
    store.append = append;
    appendFileSync(`${path}.1`, lines(1));
    return append(batch);
  };
  const one = follower();
  for (let i = 0; i < 2; i++) await lookAll(one);
  expect(await requests()).toBe(written);
  await one.close();
});

test('a finished file that has grown is read again, even if its time is the same', async () => {
  writeFileSync(path, lines(1));
  for (let i = 0; i < 3; i++) {
    const one = follower();
    await lookAll(one);
    await one.close();
    expect(await requests()).toBe(written);
    if (i === 0) rotate('numbered');
    appendFileSync(`${path}.1`, lines(1));
    age(`${path}.1`);
  }
});

test('a rotated file is kept open for a while, although its directory does not change', async () => {
  writeFileSync(path, lines(1));
  const one = follower();
  await lookAll(one);
  rotate('numbered');
  for (let i = 0; i < 3; i++) {
    age(directory);
    await lookAll(one);
    expect(await requests()).toBe(written);
    appendFileSync(`${path}.1`, lines(1));
  }
  await one.close();
});

test('files rotated while no follower ran are counted at the next start, compressed or not', async () => {
  writeFileSync(path, lines(4));
  const before = follower();
  await lookAll(before);
  await before.close();
  appendFileSync(path, lines(2));
  renameSync(path, `${path}.1`);
  writeFileSync(path, lines(3));
  writeFileSync(`${path}.2.gz`, gzipSync(lines(50)));
  const one = follower();
  await lookAll(one);
  expect(await requests()).toBe(59);
  appendFileSync(path, lines(1));
  writeFileSync(`${path}.1.gz`, gzipSync(Buffer.from('')));
  await one.close();
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(60);
  await again.close();
});

test('files created and rotated between two calls of look are counted', async () => {
  const one = follower();
  writeFileSync(`${path}.9`, lines(7));
  await lookAll(one);
  writeFileSync(path, lines(4));
  await lookAll(one);
  renameSync(path, `${path}.1`);
  writeFileSync(path, lines(3));
  renameSync(path, `${path}.2`);
  writeFileSync(path, lines(5));
  copyFileSync(path, `${path}.3`);
  truncateSync(path);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(13);
  await one.close();
});

test('a copy made before the rotation, and one made by hand, are not counted', async () => {
  const one = follower();
  writeFileSync(path, lines(5));
  await lookAll(one);
  copyFileSync(path, `${path}.bak`);
  appendFileSync(path, lines(1));
  await lookAll(one);
  copyFileSync(path, `${path}.1`);
  appendFileSync(path, lines(1));
  await lookAll(one);
  truncateSync(path);
  appendFileSync(path, lines(2));
  await lookAll(one);
  expect(await requests()).toBe(9);
  await one.close();
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(9);
  await again.close();
});

test('a file that is still being compressed is counted when it is complete', async () => {
  const one = follower();
  writeFileSync(path, lines(1));
  await lookAll(one);
  const whole = gzipSync(lines(5_000));
  for (const part of [40, whole.length / 2]) {
    writeFileSync(`${path}.2.gz`, whole.subarray(0, part));
    await lookAll(one);
  }
  writeFileSync(`${path}.2.gz`, whole);
  await expect.poll(() => lookAll(one).then(requests)).toBe(5_001);
  expect(warnings).toEqual([]);
  await one.close();
});

test('a damaged rotated file causes a warning and does not block the others', async () => {
  const one = follower();
  await lookAll(one);
  writeFileSync(path, lines(4));
  await lookAll(one);
  writeFileSync(`${path}.2.gz`, gzipSync(lines(100)).subarray(0, 40));
  written -= 100;
  writeFileSync(`${path}.1`, lines(10));
  truncateSync(path);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(15);
  await expect.poll(() => lookAll(one).then(() => warnings)).toHaveLength(2);
  expect(warnings[0]).toContain(`${path} was truncated, and no rotated copy of it was found`);
  expect(warnings[1]).toMatch(/\.2\.gz \(40 bytes\) cannot be read to its end \(unexpected end of file\)/);
  await one.close();
});

test('files older than the first follow are skipped with one warning, even if they are compressed later', async () => {
  writeFileSync(`${path}.1`, lines(20));
  writeFileSync(`${path}-20260630.gz`, gzipSync(lines(30)));
  writeFileSync(path, lines(3));
  const one = follower();
  await lookAll(one);
  expect(warnings).toHaveLength(2);
  for (const name of [`${path}.1 (6`, `${path}-20260630.gz (`]) expect(warnings.join()).toContain(`${name}`);
  expect(warnings.join()).toContain(`'wafstat ingest ${path}.1'`);
  // A worker of the web server has not reopened its log yet.
  appendFileSync(`${path}.1`, lines(1));
  // The next look lists the files, however late it is.
  utimesSync(directory, new Date(), new Date());
  await lookAll(one);
  rotate('numbered');
  writeFileSync(path, lines(2));
  compress(`${path}.2`);
  await lookAll(one);
  await one.close();
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(5);
  expect(warnings).toHaveLength(2);
  await again.close();
});

test('an older file whose time compression did not keep is skipped with a warning', async () => {
  writeFileSync(`${path}.1`, lines(20));
  const hourAgo = Date.now() / 1_000 - 3_600;
  utimesSync(`${path}.1`, hourAgo, hourAgo);
  for (const expected of [1, 2, 2]) {
    const one = follower();
    await lookAll(one);
    await one.close();
    expect(warnings).toHaveLength(expected);
    if (existsSync(`${path}.1`)) compress(`${path}.1`, 'keep no time');
  }
  expect(warnings[1]).toMatch(
    /\.1\.gz \(.*\) is skipped: it begins like a file that is older .*'wafstat ingest /,
  );
  expect(await requests()).toBe(0);
});

describe('files that all begin with the same header', () => {
  const HEADER = '#Version: 1.0\n#Fields: date time x-edge-location\n';

  test('are distinguished, like the text logs of CloudFront', async () => {
    writeFileSync(path, '');
    writeFileSync(`${path}.1`, `${HEADER}${lines(5)}`);
    let one = follower();
    await lookAll(one);
    await one.close();
    expect(warnings).toHaveLength(1);
    for (const [count, expected] of [
      [3, 3],
      [3, 6],
    ] as const) {
      appendFileSync(path, `${HEADER}${lines(count)}`);
      rotate('numbered');
      one = follower();
      await lookAll(one);
      expect(await requests()).toBe(expected);
      await one.close();
    }
    expect(warnings).toHaveLength(1);
  });

  test('are not mistaken for shorter copies of each other', async () => {
    const one = follower();
    writeFileSync(path, `${HEADER}${lines(5)}`);
    await lookAll(one);
    rotate('numbered');
    writeFileSync(path, `${HEADER}${lines(1)}`);
    rotate('numbered');
    await lookAll(one);
    expect(await requests()).toBe(6);
    await one.close();
  });

  test('are not counted before their first line', async () => {
    const one = follower();
    writeFileSync(path, HEADER.slice(0, 20));
    await lookAll(one);
    appendFileSync(path, HEADER.slice(20));
    await lookAll(one);
    writeFileSync(`${path}.bak`, `${HEADER}${lines(2)}`);
    await lookAll(one);
    expect(await requests()).toBe(0);
    expect(warnings).toEqual([expect.stringContaining('its name does not look rotated')]);
    appendFileSync(path, lines(2));
    await lookAll(one);
    expect(await requests()).toBe(2);
    await one.close();
  });

  test('are recognized line by line in a pipe', async () => {
    const text = `${HEADER}${lines(3)}`;
    const pipe = async function* () {
      for (const line of text.split(/(?<=\n)/)) yield Buffer.from(line);
    };
    for (let run = 0; run < 2; run++)
      for await (const _ of ingestFile(pipe(), ingest, store, pipeline(), { eager: true }));
    expect(await requests()).toBe(3);
  });
});

test('an old file that appears later is skipped with a warning', async () => {
  writeFileSync(path, lines(1));
  const one = follower();
  await lookAll(one);
  writeFileSync(`${path}.7`, '{"time":1}\n');
  utimesSync(`${path}.7`, 1, 1);
  writeFileSync(`${path}.filtered`, '{"time":2}\n');
  await lookAll(one);
  expect(warnings.map((warning) => /^\S*access\.log\.(\w+) \(11 bytes\)/.exec(warning)?.[1])).toEqual([
    '7',
    'filtered',
  ]);
  expect(await requests()).toBe(1);
  expect((await store.sources('p'))[0]?.dropped).toEqual({});
  await one.close();
});

test('a file without a rotated name causes one warning, and another one when it changes', async () => {
  writeFileSync(path, lines(1));
  const other = `${path}.1.xz`;
  // The file is newer than the first follow.
  const changes = [() => {}, () => writeFileSync(other, 'xz'), () => {}, () => appendFileSync(other, 'xz')];
  for (const change of changes) {
    change();
    const one = follower();
    await lookAll(one);
    await one.close();
  }
  const remedy = `To count it, decompress it first, then run 'wafstat ingest ${path}.1'`;
  expect(warnings).toEqual(
    [2, 4].map((bytes) =>
      expect.stringContaining(
        `${other} (${bytes} bytes) is skipped: its name does not look rotated. ${remedy}`,
      ),
    ),
  );
  // A rotated file with the same first line is counted.
  writeFileSync(`${path}.2`, lines(1));
  copyFileSync(`${path}.2`, `${path}.copy`);
  const one = follower();
  await lookAll(one);
  expect(await requests()).toBe(2);
  await one.close();
});

test.each(['.1.xz', '.1'])(
  'a file %s that is still being compressed with xz causes one warning, when it is complete',
  async (suffix) => {
    const other = `${path}${suffix}`;
    writeFileSync(path, lines(1));
    const one = follower();
    await lookAll(one);
    writeFileSync(other, Buffer.from('fd377a585a000004', 'hex'));
    for (let i = 0; i < 3; i++) {
      await lookAll(one);
      appendFileSync(other, 'x');
    }
    expect(warnings).toEqual([]);
    await expect.poll(() => lookAll(one).then(() => warnings)).toHaveLength(1);
    expect(warnings[0]).toContain(`${other} (11 bytes) is skipped: it is compressed with xz`);
    await one.close();
    const again = follower();
    await lookAll(again);
    expect(warnings).toHaveLength(1);
    await again.close();
  },
);

test('commands in warnings contain no name that a shell would interpret', async () => {
  writeFileSync(path, lines(1));
  const one = follower();
  await lookAll(one);
  writeFileSync(`${path}.a;reboot`, 'x\n');
  writeFileSync(`${path}.b$(reboot)`, Buffer.from('fd377a585a000004', 'hex'));
  await expect.poll(() => lookAll(one).then(() => warnings)).toHaveLength(2);
  expect(warnings.map((warning) => / run ('.*') /.exec(warning)?.[1]).sort()).toEqual([
    "'wafstat ingest ... FILE'",
    "'wafstat ingest FILE'",
  ]);
  await one.close();
});

test('a live file rotated before its first line was counted is counted', async () => {
  writeFileSync(path, lines(3));
  const hourAgo = Date.now() / 1_000 - 3_600;
  utimesSync(path, hourAgo, hourAgo);
  const one = follower();
  const { append } = store;
  store.append = () => Promise.reject(new StoreUnavailable('down'));
  await expect(one.look()).rejects.toThrow('down');
  store.append = append;
  await one.close();
  rotate('numbered');
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(3);
  await again.close();
});

test('a path without lines is stored as followed, so its first rotated file is counted', async () => {
  const one = follower();
  await lookAll(one);
  await one.close();
  expect(await store.followedPaths('p')).toMatchObject([{ source: 's', path, begun: null, files: [] }]);
  writeFileSync(path, lines(3));
  rotate('dated');
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(3);
  await again.close();
});

test('a warning is printed if the file that was begun last is gone', async () => {
  writeFileSync(path, lines(3));
  const one = follower();
  await lookAll(one);
  await one.close();
  appendFileSync(path, lines(1));
  rmSync(path);
  writeFileSync(`${path}.1`, lines(5));
  writeFileSync(path, lines(1));
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(9);
  expect(warnings).toEqual([expect.stringMatching(/is gone; lines written to it .* may be lost/)]);
  await again.close();
});

test('a warning is printed if a file is gone whose first lines another command has counted', async () => {
  writeFileSync(path, lines(2));
  for (let i = 0; i < 3; i++) {
    const one = follower();
    await lookAll(one);
    await one.close();
    if (i === 0) {
      rotate('numbered');
      writeFileSync(path, lines(3));
      for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
    }
    appendFileSync(path, lines(1));
    if (i === 1) writeFileSync(path, lines(1));
  }
  expect(await requests()).toBe(written - 2);
  expect(warnings).toEqual([expect.stringMatching(/^the file that was counted as .* is gone/)]);
});

test('a warning is printed if the log is emptied while a new process reads rotated files', async () => {
  writeFileSync(path, lines(2));
  const before = follower();
  await lookAll(before);
  await before.close();
  appendFileSync(path, lines(1));
  writeFileSync(`${path}.1`, lines(1));
  const { append } = store;
  store.append = (batch) => {
    store.append = append;
    writeFileSync(path, lines(1));
    return append(batch);
  };
  const one = follower();
  await lookAll(one);
  expect(await requests()).toBe(written - 1);
  expect(warnings).toEqual([expect.stringMatching(/^the file that was counted as .* is gone/)]);
  await one.close();
});

test.each([
  ['old', 100_000],
  ['recent', 0],
])('a copy by hand that is %s does not hide that the file that was begun last is gone', async (_, ageMs) => {
  writeFileSync(path, lines(3));
  const one = follower();
  await lookAll(one);
  await one.close();
  copyFileSync(path, `${path}.bak`);
  const time = (Date.now() - ageMs) / 1_000;
  utimesSync(`${path}.bak`, time, time);
  appendFileSync(path, lines(1));
  rmSync(path);
  writeFileSync(path, lines(1));
  const again = follower();
  await lookAll(again);
  expect(await requests()).toBe(4);
  expect(warnings).toEqual([expect.stringMatching(/is gone; lines written to it .* may be lost/)]);
  await again.close();
});

test('a copy by hand does not hide that the log was emptied', async () => {
  writeFileSync(path, lines(3));
  const one = follower();
  await lookAll(one);
  copyFileSync(path, `${path}.bak`);
  await lookAll(one);
  appendFileSync(path, lines(1));
  writeFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(4);
  expect(warnings).toEqual([expect.stringMatching(/was truncated, and no rotated copy of it was found/)]);
  await one.close();
});

test('a warning is printed if a file is gone that was begun after its rotation', async () => {
  writeFileSync(path, lines(1));
  for (let i = 0; i < 3; i++) {
    const one = follower();
    await lookAll(one);
    await one.close();
    if (i === 0) {
      rotate('numbered');
      appendFileSync(path, lines(1));
      rotate('numbered');
      age(`${path}.1`, `${path}.2`);
    } else if (i === 1) rmSync(`${path}.1`);
  }
  expect(await requests()).toBe(2);
  expect(warnings).toEqual([expect.stringMatching(/^the file that was counted as .* is gone/)]);
});

test.each(['deleted', 'replaced'])(
  'a warning is printed if a rotated file is %s while an older one is read',
  async (change) => {
    writeFileSync(path, lines(1));
    const one = follower();
    await lookAll(one);
    await one.close();
    rotate('numbered');
    appendFileSync(path, lines(2));
    rotate('numbered');
    for (const [i, name] of rotatedNames().entries())
      utimesSync(join(directory, name), NOW / 1_000, NOW / 1_000 - 100 * i);
    appendFileSync(`${path}.2`, lines(1));
    utimesSync(`${path}.2`, NOW / 1_000, NOW / 1_000 - 100);
    const { size } = statSync(`${path}.1`);
    const { append } = store;
    store.append = async (batch) => {
      store.append = append;
      const result = await append(batch);
      if (change === 'deleted') rmSync(`${path}.1`);
      else {
        writeFileSync(join(directory, 'new'), lines(3));
        renameSync(join(directory, 'new'), `${path}.1`);
      }
      return result;
    };
    const other = follower();
    // The first look finds that the file is gone, the second that no other name leads to it.
    for (let i = 0; i < 2; i++) await lookAll(other);
    expect(warnings).toEqual([
      `${path}.1 (${size} bytes) was deleted before it was read; its lines may be lost`,
    ]);
    expect(await requests()).toBe(written - 2);
    await other.close();
  },
);

test('a follower that is stopped while it reads rotated files does not begin newer ones', async () => {
  writeFileSync(path, lines(1));
  const before = follower();
  await lookAll(before);
  await before.close();
  for (let i = 0; i < 2; i++) {
    appendFileSync(path, lines(1));
    rotate('numbered');
  }
  appendFileSync(path, lines(1));
  age(`${path}.1`, `${path}.2`);
  const stopping = new AbortController();
  const { append } = store;
  store.append = (batch) => {
    stopping.abort();
    return append(batch);
  };
  const one = follower(ingest, false, stopping.signal);
  await lookAll(one);
  expect(await requests()).toBe(2);
  await one.close();
  const other = follower();
  await lookAll(other);
  expect(await requests()).toBe(written);
  await other.close();
});

test('a follower that is killed while it reads rotated files leaves a warning to the next one', async () => {
  writeFileSync(path, lines(1));
  const before = follower();
  await lookAll(before);
  await before.close();
  for (let i = 0; i < 3; i++) {
    appendFileSync(path, lines(1));
    rotate('numbered');
  }
  rmSync(`${path}.3`);
  await crash(follower(), 0, true);
  expect(warnings).toEqual([]);
  const other = follower();
  await lookAll(other);
  expect(await requests()).toBe(3);
  expect(warnings).toEqual([expect.stringContaining('is gone; lines written to it')]);
  await other.close();
});

test('files newer than the last one that ingest has begun are counted', async () => {
  const files = [lines(2), lines(3), lines(4), lines(5)];
  for (const [i, text] of files.entries()) {
    const file = i === 3 ? path : `${path}.${3 - i}`;
    writeFileSync(file, text);
    const time = Date.now() / 1_000 - 3_600 * (4 - i);
    utimesSync(file, time, time);
  }
  // It had begun the second of four.
  const begun = (files[1] ?? '').split('\n').slice(0, 2).join('\n');
  const stream = (async function* () {
    yield Buffer.from(`${begun}\n`);
  })();
  for await (const _ of ingestFile(stream, ingest, store, pipeline()));
  const one = follower();
  await lookAll(one);
  expect(await requests()).toBe(3 + 4 + 5);
  expect(warnings).toEqual([expect.stringContaining(`${path}.3 (`)]);
  await one.close();
});

test('finished files are not read again after a restart or compression', async () => {
  const one = follower();
  await lookAll(one);
  for (let i = 0; i < 5; i++) {
    writeFileSync(path, lines(10));
    await lookAll(one);
    rotate('numbered');
  }
  await lookAll(one);
  clock.now += 120_000;
  await lookAll(one);
  await one.close();
  compress(`${path}.3`);
  let queries = 0;
  const { batchesAfter } = store;
  store.batchesAfter = (...args) => {
    queries++;
    return batchesAfter(...args);
  };
  const again = follower();
  for (let i = 0; i < 10; i++) await lookAll(again);
  // One query, for the live file.
  expect(queries).toBe(1);
  await again.close();
});

test('a rotated file without read permission causes a warning, and is counted once it is readable', async () => {
  const one = follower();
  await lookAll(one);
  writeFileSync(`${path}.1`, lines(3));
  chmodSync(`${path}.1`, 0);
  // Root may read everything, so another user looks.
  const isRoot = process.geteuid?.() === 0;
  chmodSync(directory, 0o755);
  if (isRoot) process.seteuid?.(NOBODY);
  try {
    await expect.poll(() => lookAll(one).then(() => warnings.length)).toBe(1);
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
  chmodSync(`${path}.1`, 0o600);
  await expect.poll(() => lookAll(one).then(requests)).toBe(3);
  await one.close();
});

const NOBODY = 65_534;

const step = fc.oneof(
  fc.record({ kind: fc.constant('write' as const), count: fc.integer({ min: 1, max: 5 }) }),
  fc.record({
    kind: fc.constant('crash' as const),
    appends: fc.integer({ min: 0, max: 3 }),
    isStored: fc.boolean(),
  }),
  fc.record({
    kind: fc.constantFrom(
      'numbered' as const,
      'dated' as const,
      'copytruncate' as const,
      'compress' as const,
      'compress and keep no time' as const,
      'late line' as const,
      'header' as const,
      'copy by hand' as const,
      'age' as const,
      'retire' as const,
      'look' as const,
      'look' as const,
      'kill' as const,
      'kill' as const,
    ),
  }),
);

test('every line is counted once, in any order of writes, rotations, compression, looks and kills', async () => {
  const header = fc.constantFrom('', '#Version: 1.0\n', '#Version: 1.0\n\n#Fields: date time\n');
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), header, async (steps, header) => {
      const start = () => (statSync(path).size === 0 ? header : '');
      for (const name of readdirSync(directory)) rmSync(join(directory, name));
      clock.now = NOW;
      store = memoryStore(() => clock.now);
      written = 0;
      writeFileSync(path, '');
      let one = follower();
      await one.look();
      await one.close();
      // Followed for so long that even old files belong to the path.
      for (const state of await store.followedPaths('p'))
        await store.putFollowedPath('p', { ...state, since: 0 });
      one = follower();
      for (const next of steps) {
        const plain = rotatedNames().filter((name) => !name.endsWith('.gz'));
        const [oldest = '', newest = ''] = [plain.at(-1), plain[0]];
        if (next.kind === 'write') appendFileSync(path, start() + lines(next.count));
        else if (next.kind === 'header') appendFileSync(path, start());
        else if (next.kind === 'look') await one.look();
        else if (next.kind === 'retire') clock.now += 120_000;
        else if (next.kind === 'copy by hand') copyFileSync(path, `${path}.bak`);
        else if (next.kind === 'crash') {
          await crash(one, next.appends, next.isStored);
          one = follower();
        } else if (next.kind === 'kill') {
          await one.close();
          one = follower();
        } else if (next.kind === 'age') {
          for (const [i, name] of rotatedNames().entries()) {
            const time = Date.now() / 1_000 - 3_600 - i * 10;
            utimesSync(join(directory, name), time, time);
          }
        } else if (next.kind === 'late line') {
          if (newest !== '') appendFileSync(join(directory, newest), lines(1));
        } else if (next.kind === 'compress') {
          if (oldest !== '') compress(join(directory, oldest));
        } else if (next.kind === 'compress and keep no time') {
          if (oldest !== '') compress(join(directory, oldest), 'keep no time');
        } else rotate(next.kind);
      }
      await one.close();
      one = follower();
      await lookAll(one);
      expect(await requests()).toBe(written);
      clock.now += 120_000;
      await lookAll(one);
      expect(await requests()).toBe(written);
      await one.close();
    }),
    { numRuns: scaled(150) },
  );
});

test('a link to the newest dated file is followed from file to file', async () => {
  const dated = (day: number) => join(directory, `access-2026070${day}.log`);
  writeFileSync(dated(1), lines(2));
  symlinkSync(dated(1), path);
  let one = follower();
  await lookAll(one);
  appendFileSync(dated(1), lines(1));
  for (const day of [2, 3]) {
    writeFileSync(dated(day), lines(day));
    rmSync(path);
    symlinkSync(dated(day), path);
    if (day === 2) await one.close();
    if (day === 2) one = follower();
    await lookAll(one);
    expect(await requests()).toBe(written);
  }
  expect(warnings).toEqual([]);
  await one.close();
});

test.each(['numbered', 'compressed'])(
  'rotated files beside the target of a link are counted (%s)',
  async (kind) => {
    // The layout of kubelet.
    const pods = mkdtempSync(join(directory, 'pods-'));
    const target = join(pods, '0.log');
    const rotated = (time: number) => {
      renameSync(target, `${target}.20260701-${time}`);
      if (kind === 'compressed') compress(`${target}.20260701-${time}`);
    };
    writeFileSync(target, lines(2));
    symlinkSync(target, path);
    let one = follower();
    await lookAll(one);
    await one.close();
    for (const time of [120000, 130000]) {
      appendFileSync(target, lines(3));
      rotated(time);
      writeFileSync(target, lines(1));
    }
    one = follower();
    await lookAll(one);
    expect(await requests()).toBe(written);
    appendFileSync(target, lines(1));
    rotated(140000);
    writeFileSync(target, lines(1));
    await lookAll(one);
    expect(await requests()).toBe(written);
    expect(warnings).toEqual([]);
    await one.close();
    rmSync(path);
    rmSync(pods, { recursive: true });
  },
);

test('a look at an unchanged file does not copy pending parts of lines', async () => {
  const part = (text: string) => `2026-07-01T00:00:00Z stdout P ${text}\n`;
  writeFileSync(path, part('{"time":'));
  const one = follower();
  await lookAll(one);
  const readState = vi.spyOn(JSON, 'parse');
  for (let i = 0; i < 5; i++) await lookAll(one);
  expect(readState).not.toHaveBeenCalled();
  readState.mockRestore();
  // They are dropped after a minute.
  clock.now += 120_000;
  await lookAll(one);
  expect((await store.sources('p'))[0]?.dropped).toEqual({ unfinished_record: 1 });
  await one.close();
});

/** A line of an error log. */
function attack(id: number): string {
  const time = new Date(clock.now).toISOString().slice(0, 19).replaceAll('-', '/').replace('T', ' ');
  return (
    `${time} [error] 1#1: *${id} [client 192.0.2.7] ModSecurity: Access denied with code 403 (phase 2). ` +
    `[id "942100"] [ver "OWASP_CRS/4.0.0"] [tag "attack-sqli"] [hostname "a.example"] [uri "/"] ` +
    `[unique_id "${id}"], client: 192.0.2.7, server: a.example, request: "GET / HTTP/1.1", host: "a.example"\n`
  );
}

async function attacks(): Promise<number> {
  return (await store.count({ project: 'p', edges: [0, NOW + 3_600_000], rows: 'timeline' }))[1][0] ?? 0;
}

const anyFormat = {
  project: 'p',
  source: { name: 's', format: 'auto' },
  reader: { format: 'auto' as const },
};

test('requests that become complete one after the other, without new lines, each count', async () => {
  const { append } = store;
  const kinds: string[] = [];
  store.append = async (batch) => {
    const appended = await append(batch);
    kinds.push(appended.kind);
    return appended;
  };
  const one = follower(anyFormat);
  for (const id of [1, 2]) {
    appendFileSync(path, attack(id));
    await lookAll(one);
    clock.now += 300;
  }
  for (const counted of [1, 2]) {
    await lookAll(one);
    expect(await attacks()).toBe(counted);
    clock.now += 300;
  }
  expect(new Set(kinds)).toEqual(new Set(['appended']));
  await one.close();
});

test('the parts of a line that a container runtime has split are read once if the store fails', async () => {
  const one = follower(anyFormat);
  const part = (tag: string, text: string) => `2026-07-01T00:00:00.000000000Z stdout ${tag} ${text}\n`;
  writeFileSync(path, part('P', '{"time":'));
  const { append } = store;
  store.append = () => Promise.reject(new StoreUnavailable('down'));
  await expect(one.look()).rejects.toThrow('down');
  store.append = append;
  appendFileSync(path, part('F', `${NOW - 1_000}}`));
  await lookAll(one);
  expect(await requests()).toBe(1);
  await one.close();
});

test('a file that is replaced between two looks, before any of it is counted, counts once', async () => {
  const { append } = store;
  writeFileSync(path, lines(2));
  const one = follower();
  store.append = () => Promise.reject(new StoreUnavailable('down'));
  await expect(one.look()).rejects.toThrow('down');
  store.append = append;
  writeFileSync(path, lines(3));
  await lookAll(one);
  await one.close();
  const next = follower();
  await lookAll(next);
  expect(await requests()).toBe(3);
  await next.close();
});

test('attacks in an error log are counted although the clock is set back', async () => {
  writeFileSync(path, '');
  const one = follower(anyFormat);
  for (let id = 1; id <= 20; id++) {
    if (id === 11) clock.now -= 3_600_000;
    appendFileSync(path, attack(id));
    await lookAll(one);
    clock.now += 100;
  }
  clock.now += 500;
  await lookAll(one);
  expect(await attacks()).toBe(20);
  await one.close();
});

test('a copy that is written slowly adds no line twice', async () => {
  const one = follower();
  await lookAll(one);
  // More than one chunk.
  writeFileSync(path, lines(60_000));
  await lookAll(one);
  const whole = readFileSync(path);
  writeFileSync(`${path}.1`, '');
  for (let offset = 0; offset < whole.length; offset += 300_001) {
    appendFileSync(`${path}.1`, whole.subarray(offset, offset + 300_001));
    await lookAll(one);
    expect(await requests()).toBe(60_000);
  }
  appendFileSync(`${path}.1`, lines(1));
  truncateSync(path);
  appendFileSync(path, lines(1));
  await lookAll(one);
  expect(await requests()).toBe(60_002);
  await one.close();
});

test.each([
  ['inside its first line', 400],
  ['inside a later line', 2_000],
])('a copy that ends %s, and grows before any read of it, adds no line twice', async (_, bytes) => {
  // In two chunks, so that the ID of one chunk with all lines is not known.
  for (const range of ['1 to 5', '6 to 10']) {
    const pad = 'x'.repeat(500);
    for (let i = 0; i < 5; i++)
      appendFileSync(path, `{"time":${NOW - 1_000},"line":"${i} of ${range}","pad":"${pad}"}\n`);
    const one = follower();
    await lookAll(one);
    await one.close();
  }
  const copy = `${path}.1`;
  const whole = readFileSync(path);
  let [reads, grownBefore] = [0, 0];
  const growing = async (name: string) => {
    const handle = await NODE_FILES.open(name);
    if (name !== copy) return handle;
    const read: OpenFile['read'] = (...args) => {
      if (++reads === grownBefore) appendFileSync(copy, whole.subarray(bytes));
      return handle.read(...args);
    };
    return { fd: handle.fd, read, stat: () => handle.stat(), close: () => handle.close() };
  };
  while (reads >= grownBefore) {
    reads = 0;
    grownBefore++;
    writeFileSync(copy, whole.subarray(0, bytes));
    const next = follower(ingest, false, undefined, { ...NODE_FILES, open: growing });
    for (let look = 0; look < 3; look++) await lookAll(next);
    expect(await requests(), `before read ${grownBefore}`).toBe(10);
    await next.close();
    rmSync(copy);
  }
});

test('lines are counted after a failure of the store', async () => {
  const one = follower();
  writeFileSync(path, lines(3));
  const { append } = store;
  store.append = () => Promise.reject(new StoreUnavailable('down'));
  await expect(one.look()).rejects.toThrow('down');
  store.append = append;
  await lookAll(one);
  expect(await requests()).toBe(3);
  await one.close();
});

test('two followers and an ingest of the same file count each line once', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('write', 'a', 'b', 'ingest', 'restart'), { maxLength: 40 }),
      async (steps) => {
        store = memoryStore(() => NOW);
        written = 0;
        writeFileSync(path, '');
        const both = { a: follower(), b: follower() };
        for (const step of steps) {
          if (step === 'write') appendFileSync(path, lines(2));
          else if (step === 'ingest')
            for await (const _ of ingestFile(openLog(path), ingest, store, pipeline()));
          else if (step === 'restart') {
            await both.a.close();
            both.a = follower();
          } else await both[step].look();
        }
        await lookAll(both.a);
        await lookAll(both.b);
        expect(await requests()).toBe(written);
        await both.a.close();
        await both.b.close();
      },
    ),
    { numRuns: scaled(60) },
  );
});

test('a file that grows in many small steps has one chunk', async () => {
  const one = follower();
  writeFileSync(path, '');
  for (let i = 0; i < 200; i++) {
    appendFileSync(path, lines(1));
    await lookAll(one);
  }
  expect(await store.batchesAfter('p', 's', '')).toHaveLength(1);
  expect(await requests()).toBe(200);
  await one.close();
});

/** Crashes during a look, after this many appends; the one that fails may be stored or not. */
async function crash(one: Follower, appends: number, isStored: boolean): Promise<void> {
  const { append } = store;
  let left = appends;
  store.append = async (batch) => {
    if (left-- > 0) return append(batch);
    if (isStored) await append(batch);
    throw new StoreUnavailable('killed');
  };
  await lookAll(one).catch((error) => expect(error).toBeInstanceOf(StoreUnavailable));
  store.append = append;
  await one.close();
}

/** Newest first. */
function rotatedNames(): string[] {
  const numberOf = (name: string) => Number(/\.(\d+)(\.gz)?$/.exec(name)?.[1] ?? 0);
  const names = readdirSync(directory).filter((name) => /^access\.log[.-]\d/.test(name));
  return names.sort((a, b) => numberOf(a) - numberOf(b) || (a < b ? 1 : -1));
}

function rotate(kind: 'numbered' | 'dated' | 'copytruncate'): void {
  if (kind === 'dated') {
    let day = 20260701;
    while (existsSync(`${path}-${day}`) || existsSync(`${path}-${day}.gz`)) day++;
    renameSync(path, `${path}-${day}`);
  } else {
    for (const name of rotatedNames().reverse()) {
      const [, number, gz = ''] = /^access\.log\.(\d+)(\.gz)?$/.exec(name) ?? [];
      if (number !== undefined) renameSync(join(directory, name), `${path}.${Number(number) + 1}${gz}`);
    }
    if (kind === 'numbered') renameSync(path, `${path}.1`);
    else {
      copyFileSync(path, `${path}.1`);
      truncateSync(path);
    }
  }
  if (kind !== 'copytruncate') writeFileSync(path, '');
}

function compress(file: string, time?: 'keep no time'): void {
  const { atime, mtime } = statSync(file);
  writeFileSync(`${file}.gz`, gzipSync(readFileSync(file)));
  if (time === undefined) utimesSync(`${file}.gz`, atime, mtime);
  rmSync(file);
}

test.each([5_000, 3_000_000])(
  'holes of %i bytes, left by copytruncate under a writer that keeps its offset, lose no line',
  async (bytes) => {
    const fd = openSync(path, 'w');
    let offset = 0;
    const write = (count: number) => {
      offset += writeSync(fd, lines(count), offset);
    };
    let one = follower();
    for (let rotation = 1; rotation <= 4; rotation++) {
      write(3);
      if (rotation === 1) offset += writeSync(fd, '\n'.repeat(bytes), offset);
      await lookAll(one);
      write(2);
      copyFileSync(path, `${path}.${rotation}`);
      truncateSync(path);
      write(2);
      if (rotation % 2 === 0) {
        await one.close();
        one = follower();
      }
      await lookAll(one);
      expect(await requests()).toBe(written);
    }
    await one.close();
    closeSync(fd);
    expect(warnings).toEqual([]);
  },
);

describe('lines in the future', () => {
  const future = (count: number) => lines(count).replaceAll(`${NOW - 1_000}`, `${NOW + 48 * 3_600_000}`);
  const inFuture = async () => (await store.sources('p'))[0]?.dropped.in_future ?? 0;

  test('wait for the clock, and are dropped after a line in time', async () => {
    const one = follower();
    writeFileSync(path, future(2));
    await expect(lookAll(one)).rejects.toThrow(LinesInFuture);
    clock.now += 48 * 3_600_000;
    await lookAll(one);
    expect(await inFuture()).toBe(0);
    expect((await store.sources('p'))[0]).toMatchObject({ events: 2 });
    appendFileSync(path, future(2).replaceAll(`${NOW + 48 * 3_600_000}`, `${NOW + 96 * 3_600_000}`));
    await lookAll(one);
    expect(await inFuture()).toBe(2);
    // A clock that is set must be shown to be right again.
    clock.now -= 48 * 3_600_000;
    appendFileSync(path, future(2));
    await expect(lookAll(one)).rejects.toThrow(LinesInFuture);
    await one.close();
  });

  test('of one sensor do not stop a log that had lines in time', async () => {
    const one = follower();
    writeFileSync(path, lines(3));
    await lookAll(one);
    appendFileSync(path, future(2));
    await lookAll(one);
    appendFileSync(path, lines(1));
    await lookAll(one);
    expect([await requests(), await inFuture()]).toEqual([4, 2]);
    await one.close();
  });

  test('in a rotated file do not block the live log', async () => {
    for (const rotated of [`${path}.1`, `${path}.1.gz`]) {
      const one = follower();
      await lookAll(one);
      writeFileSync(rotated, rotated.endsWith('.gz') ? gzipSync(future(2)) : future(2));
      writeFileSync(path, future(1));
      await expect(lookAll(one)).rejects.toThrow(LinesInFuture);
      const before = await requests();
      appendFileSync(path, lines(3));
      // The rotated file waits until the next look, when the live log has shown that the clock is right.
      await lookAll(one).catch(() => lookAll(one));
      expect(await requests()).toBe(before + 3);
      await lookAll(one);
      expect(await inFuture()).toBe(3);
      await one.close();
      rmSync(rotated);
      rmSync(path);
      store = memoryStore(() => clock.now);
    }
  });

  test('in a live log that is rotated do not block the next one', async () => {
    const one = follower();
    await lookAll(one);
    writeFileSync(path, future(2));
    await expect(lookAll(one)).rejects.toThrow(LinesInFuture);
    renameSync(path, `${path}.1`);
    writeFileSync(path, lines(3));
    await lookAll(one).catch(() => lookAll(one));
    expect([await requests(), await inFuture()]).toEqual([3, 2]);
    await one.close();
  });
});
