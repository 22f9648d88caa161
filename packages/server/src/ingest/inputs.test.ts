import { mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { findInputs, MatchingLogs } from './inputs.ts';

function directoryWith(...names: string[]): string {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  for (const name of names) writeFileSync(join(directory, name), 'a line\n');
  return directory;
}

test('a link to itself is skipped by name, and the files after it are found', () => {
  const directory = directoryWith('b.log', 'c.log');
  symlinkSync('a-loop', join(directory, 'a-loop'));
  const { files, problems, skipped } = findInputs([directory]);
  expect(files.map(({ path }) => path).sort()).toEqual([join(directory, 'b.log'), join(directory, 'c.log')]);
  expect(skipped).toEqual([{ path: join(directory, 'a-loop'), what: 'a link that leads to itself' }]);
  expect(problems).toEqual([]);
});

test('a link to itself as an operand is a problem, and matches no pattern', () => {
  const directory = directoryWith('b.log');
  symlinkSync('a.log', join(directory, 'a.log'));
  symlinkSync('[ab].log', join(directory, '[ab].log'));
  expect(findInputs([join(directory, 'a.log')]).problems).toEqual([
    { path: join(directory, 'a.log'), code: 'ELOOP' },
  ]);
  expect(look(join(directory, '*.log'))).toEqual([join(directory, 'b.log')]);
  expect(look(join(directory, '[ab].log'))).toEqual([join(directory, 'b.log')]);
});

test('compressed files, directories, and rotated files of logs that are or were there match no pattern', () => {
  const directory = directoryWith('a.log', 'a.log.1', 'a-20260701.log', 'b.log.1', 'b.log.2', 'c.log.xz');
  mkdirSync(join(directory, 'd.log'));
  const pattern = join(directory, '*.log*');
  const paths = (...names: string[]) => names.map((name) => join(directory, name));
  expect(look(pattern)).toEqual(paths('a.log', 'b.log.1', 'b.log.2'));
  expect(look(pattern, paths('b.log'))).toEqual(paths('a.log'));
});

test('a pattern is matched again after a change of a directory, soon after one, and after a minute', () => {
  const directory = directoryWith();
  mkdirSync(join(directory, 'one'));
  const HOUR_MS = 3_600_000;
  const now = Date.now() + HOUR_MS;
  const matching = new MatchingLogs(join(directory, '*', '*.log'));
  expect(matching.mayDiffer(now)).toBe(true);
  expect(matching.look(new Set(), now)).toEqual([]);
  expect(matching.mayDiffer(now + 1_000)).toBe(false);
  expect(matching.mayDiffer(now + 61_000)).toBe(true);
  // The clock was set back.
  expect(matching.mayDiffer(now - HOUR_MS)).toBe(true);

  writeFileSync(join(directory, 'one', 'a.log'), '');
  expect(matching.mayDiffer(now + 1_000)).toBe(true);
  expect(matching.look(new Set(), now + 1_000)).toHaveLength(1);
  expect(matching.mayDiffer(now + 2_000)).toBe(false);
  mkdirSync(join(directory, 'two'));
  expect(matching.mayDiffer(now + 2_000)).toBe(true);

  utimesSync(directory, new Date(), new Date(now + 1_500));
  matching.look(new Set(), now + 2_000);
  expect(matching.mayDiffer(now + 3_000)).toBe(true);
});

test('a directory that does not exist yet is noticed', () => {
  const directory = join(directoryWith(), 'later');
  const now = Date.now() + 3_600_000;
  const matching = new MatchingLogs(join(directory, '*.log'));
  expect(matching.look(new Set(), now)).toEqual([]);
  expect(matching.mayDiffer(now + 1_000)).toBe(false);
  mkdirSync(directory);
  expect(matching.mayDiffer(now + 1_000)).toBe(true);
});

function look(pattern: string, followed: string[] = []): string[] {
  return new MatchingLogs(pattern).look(new Set(followed), Date.now());
}
