import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { isRotatedName, nameKind, ROTATED_FILES_MAX, rotatedFiles } from './rotated-files.ts';

test.each([
  ['access.log.1', 'rotated'],
  ['access.log.12.gz', 'rotated'],
  ['access.log.0', 'rotated'],
  ['access.log-20260701', 'rotated'],
  ['access.log-20260701.gz', 'rotated'],
  ['access.log-2026-07-01_13.gz', 'rotated'],
  ['access.log-20260701-1783000000', 'rotated'],
  ['access.log.2026-07-01', 'rotated'],
  ['access.log.old', 'rotated'],
  ['access-20260701.log', 'rotated'],
  ['access-2026-07-01.log.gz', 'rotated'],
  ['access.log.bak', 'other'],
  ['access.log.1.xz', 'other'],
  ['access.log-filtered', 'other'],
  ['access.log', null],
  ['access-443.log', null],
  ['access-admin.log', null],
  ['access.logs', null],
  ['error.log.1', null],
  ['other-access.log.1', null],
])('%s beside access.log is %s', (name, kind) => {
  expect(nameKind(name, 'access.log')).toBe(kind);
});

test('a log without an extension has rotated files too', () => {
  expect(nameKind('messages.1', 'messages')).toBe('rotated');
  expect(nameKind('messages-20260701', 'messages')).toBe('rotated');
  expect(nameKind('messages-admin', 'messages')).toBe('other');
});

test('rotated files are listed oldest first; at equal times, a higher number or an earlier date is older', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-rotated-'));
  const times = { '.1': 30, '.10.gz': 10, '.9.gz': 10, '.2.gz': 20, '-20260702': 5, '-20260701.gz': 5 };
  for (const [suffix, time] of Object.entries(times)) {
    writeFileSync(join(directory, `a.log${suffix}`), 'x');
    utimesSync(join(directory, `a.log${suffix}`), time, time);
  }
  writeFileSync(join(directory, 'a.log'), 'x');
  const listed = (await rotatedFiles(join(directory, 'a.log'))).map(({ path }) => basename(path).slice(5));
  expect(listed).toEqual(['-20260701.gz', '-20260702', '.10.gz', '.9.gz', '.2.gz', '.1']);
  expect(await rotatedFiles(join(directory, 'missing', 'a.log'))).toEqual([]);
  rmSync(directory, { recursive: true });
});

test('of more rotated files than the limit, the newest are listed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-rotated-'));
  for (let i = 1; i <= ROTATED_FILES_MAX + 1; i++) {
    writeFileSync(join(directory, `a.log.${i}`), '');
    utimesSync(join(directory, `a.log.${i}`), 10_000 - i, 10_000 - i);
  }
  const listed = await rotatedFiles(join(directory, 'a.log'));
  expect(listed).toHaveLength(ROTATED_FILES_MAX);
  expect(basename(listed.at(-1)?.path ?? '')).toBe('a.log.1');
  rmSync(directory, { recursive: true });
});

test('a name is rotated if it is so beside one of the logs', () => {
  const part = fc.constantFrom(
    'a',
    'access',
    '.log',
    '.',
    '-',
    '.1',
    '-20260701',
    '.2.1',
    '.old',
    '.gz',
    '_13',
  );
  const name = fc.array(part, { minLength: 1, maxLength: 5 }).map((parts) => parts.join(''));
  let rotated = 0;
  fc.assert(
    fc.property(
      name,
      fc.array(part, { maxLength: 2 }),
      fc.array(name, { maxLength: 5 }),
      (log, suffix, others) => {
        const other = log + suffix.join('');
        const logs = new Set([log, ...others]);
        const expected = [...logs].some((log) => nameKind(other, log) === 'rotated');
        if (expected) rotated++;
        expect(isRotatedName(other, (name) => logs.has(name))).toBe(expected);
        const dated = other.replace('.log', '-20260701.log');
        expect(isRotatedName(dated, (name) => logs.has(name))).toBe(
          [...logs].some((log) => nameKind(dated, log) === 'rotated'),
        );
      },
    ),
    { numRuns: scaled(2_000) },
  );
  expect(rotated).toBeGreaterThan(0);
});
