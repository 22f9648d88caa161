/** Which store it is, as the settings say. The only place that knows them all. */
import { readFileSync } from 'node:fs';
import type { SettingName, Settings } from '../config.ts';
import type { ClickHouseOptions } from '../store/clickhouse/clickhouse.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';

export const CLICKHOUSE_SETTINGS = [
  'clickhouseUrl',
  'clickhouseInsecureHttp',
  'clickhouseDatabase',
  'clickhouseUser',
  'clickhousePasswordFile',
  'clickhouseCluster',
  'clickhouseReplicated',
  'clickhouseTimeout',
] as const satisfies readonly SettingName[];

/** Of every command that counts or asks. */
export const STORE_SETTINGS = ['store', ...CLICKHOUSE_SETTINGS, 'clickhouseMigrate'] as const;

export type ClickHouseSettings = Settings<(typeof CLICKHOUSE_SETTINGS)[number]>;
export type StoreSettings = { store: 'lmdb' } | Settings<(typeof STORE_SETTINGS)[number]>;

export function isEmbedded(settings: StoreSettings): settings is { store: 'lmdb' } {
  return !('clickhouseUrl' in settings) || settings.store === 'lmdb';
}

export async function openStore(settings: StoreSettings, file: string, now: () => number): Promise<Store> {
  if (isEmbedded(settings)) return lmdbStore(file, now);
  // Loaded here, because those who have one machine have no use for it.
  const { clickhouseStore } = await import('../store/clickhouse/clickhouse.ts');
  const mayMigrate = settings.clickhouseMigrate === 'auto';
  return clickhouseStore({ ...clickhouseOptions(settings), mayMigrate }, now);
}

export function clickhouseOptions(settings: ClickHouseSettings): ClickHouseOptions {
  const { clickhousePasswordFile } = settings;
  const password =
    clickhousePasswordFile === undefined
      ? ''
      : readFileSync(clickhousePasswordFile, 'utf8').split(/\r?\n/)[0];
  return {
    urls: settings.clickhouseUrl ?? [],
    database: settings.clickhouseDatabase,
    user: settings.clickhouseUser,
    password: password ?? '',
    cluster: settings.clickhouseCluster,
    replicated: settings.clickhouseReplicated ?? false,
    timeoutMs: settings.clickhouseTimeout * 1_000,
  };
}
