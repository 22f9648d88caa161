import { spawnSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { copyOtherFiles, removeLeftovers, unfinishedSuffix } from './backup.ts';

test('a backup has the whole audit trail once, also if it is rotated meanwhile', () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-backup-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const [from, to] = [join(directory, 'data'), join(directory, 'backup')];
  for (const each of [from, to]) mkdirSync(each);
  for (const name of ['audit.log', 'audit.log.1', 'master.key', 'statistics.mdb'])
    writeFileSync(join(from, name), `${name} before`);
  let lists = 0;
  copyOtherFiles(from, to, () => {
    const names = readdirSync(from);
    if (++lists > 2) return names;
    // Another process rotates the trail after each list, and deletes the oldest file.
    renameSync(join(from, 'audit.log'), join(from, `audit.log.${lists + 1}`));
    rmSync(join(from, 'audit.log.1'), { force: true });
    writeFileSync(join(from, 'audit.log'), `new ${lists}`);
    return names;
  });
  const copied = readdirSync(to).sort();
  expect(copied).toEqual(['audit.log', 'audit.log.2', 'audit.log.3', 'master.key']);
  expect(copied.map((name) => readFileSync(join(to, name), 'utf8'))).toEqual([
    'new 2',
    'audit.log before',
    'new 1',
    'master.key before',
  ]);
});

test('a trail that was rotated, but has no new file yet, is in a backup once', () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-backup-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const [from, to] = [join(directory, 'data'), join(directory, 'backup')];
  for (const each of [from, to]) mkdirSync(each);
  writeFileSync(join(from, 'audit.log'), 'entries');
  let lists = 0;
  copyOtherFiles(from, to, () => {
    if (++lists === 2) renameSync(join(from, 'audit.log'), join(from, 'audit.log.1'));
    // Deleted since it was listed.
    return [...readdirSync(from), 'gone'];
  });
  expect(readdirSync(to)).toEqual(['audit.log.1']);
});

test('copies of killed commands are removed, but nothing else', () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-backup-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const ended = spawnSync('true').pid;
  const kept = [
    `running${unfinishedSuffix(process.ppid)}`,
    `running${unfinishedSuffix(process.ppid)}-lock`,
    `elsewhere.unfinished-00000000-${ended}`,
    `other${unfinishedSuffix(ended)}.bak`,
    'mine.unfinished-notes',
    `${unfinishedSuffix(ended).slice(1)}`,
  ];
  const leftovers = [
    `killed${unfinishedSuffix(ended)}`,
    `killed${unfinishedSuffix(ended)}-lock`,
    `same-number${unfinishedSuffix(process.pid)}`,
  ];
  for (const name of [...kept, ...leftovers]) {
    mkdirSync(join(directory, name));
    writeFileSync(join(directory, name, 'statistics.mdb'), '');
  }
  removeLeftovers(directory);
  expect(readdirSync(directory).sort()).toEqual(kept.sort());
});
