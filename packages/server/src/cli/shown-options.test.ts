import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { COUNTING_OPTIONS, DATA, SERVER_OPTIONS, SERVICE_OPTIONS, STORE_OPTIONS } from '../config.ts';
import type { Command } from './command.ts';
import { followCommand } from './follow.ts';
import { ingestCommand } from './ingest.ts';
import { shownOptions } from './shown-options.ts';

const shown = (given: Record<string, string>) => shownOptions((name) => given[name]);

test('what differs from the defaults is shown', () => {
  expect(shown({})).toEqual({ options: [], counting: [] });
  expect(
    shown({ data: '/srv/data', attackSources: 'off', retention: '400d', hostsMax: '1000', topKeys: '64' }),
  ).toEqual({
    options: ['--data', '/srv/data'],
    counting: ['--retention', '400d', '--attack-sources', 'off', '--top-keys', '64'],
  });
});

test('relative paths are those of the service', () => {
  expect(shown({ data: 'data', categories: 'own.json' }).options).toEqual([
    '--data',
    resolve('data'),
    '--categories',
    resolve('own.json'),
  ]);
});

test('databases are shown without passwords', () => {
  const store = { store: 'postgres', postgresInsecure: 'true', postgresTimeout: '30' };
  const url = 'postgres://wafstat@db1,db2:5432/wafstat';
  const others = ['--postgres-insecure', '--postgres-timeout', '30'];
  expect(shown({ ...store, postgresUrl: url }).options).toEqual([
    '--store',
    'postgres',
    '--postgres-url',
    url,
    ...others,
  ]);
  const secret = 'postgres://wafstat:hunter2@db1:5432/wafstat';
  expect(shown({ ...store, postgresUrl: secret }).options).toEqual(['--store', 'postgres', ...others]);
  expect(shown({ store: 'postgres', postgresInsecure: 'false' }).options).toEqual(['--store', 'postgres']);
});

test('every option that serve shares with ingest and follow is shown', () => {
  const sharedWith = ({ options }: Command) =>
    Object.keys(options).filter((name) => Object.hasOwn(SERVICE_OPTIONS, name));
  const covered = {
    data: DATA,
    categories: SERVER_OPTIONS.categories,
    ...COUNTING_OPTIONS,
    ...STORE_OPTIONS,
  };
  expect(sharedWith(ingestCommand).sort()).toEqual(Object.keys(covered).sort());
  expect(sharedWith(followCommand).sort()).toEqual(Object.keys(covered).sort());
});
