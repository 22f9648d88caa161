/** The rollup tables of every peer, and the two queries. Each peer adds its types, key and dialect. */
import { CATEGORIES, HOUR_MS, MINUTE_MS } from '../data.mjs';

export const TABLES = ['minutes', 'hours'];
export const COUNTS = ['requests', 'attacks', ...CATEGORIES];

/** What a batch of events adds to the tables: `{minutes: [[scope, t, ...counts], ...], hours: [...]}`. */
export function rowsOf(events) {
  return { minutes: countBy(MINUTE_MS, events), hours: countBy(HOUR_MS, events) };
}

function countBy(unit_ms, events) {
  const rows = new Map();
  for (const { time, host, category } of events) {
    const t = Math.floor(time / unit_ms);
    for (const scope of [0, host + 1]) {
      const key = scope * 2 ** 32 + t;
      let row = rows.get(key);
      if (row === undefined) {
        row = [scope, t, ...COUNTS.map(() => 0)];
        rows.set(key, row);
      }
      row[2]++;
      if (category >= 0) {
        row[3]++;
        row[4 + category]++;
      }
    }
  }
  return [...rows.values()];
}

/** For databases with a key: adds to rows that exist. */
export function upsertSql(table, source) {
  const sums = COUNTS.map((name) => `${name} = ${table}.${name} + excluded.${name}`);
  return `INSERT INTO ${table} ${source} ON CONFLICT (scope, t) DO UPDATE SET ${sums.join()}`;
}

/** One scope has one row per time, so there is nothing to add up. */
export function timelineSql(table, scopes, placeholder) {
  const where = `scope IN (${scopes.map(placeholder).join()}) AND t >= ${placeholder(0, scopes.length)} AND t < ${placeholder(0, scopes.length + 1)}`;
  return scopes.length === 1
    ? `SELECT t, requests, attacks FROM ${table} WHERE ${where}`
    : `SELECT t, sum(requests), sum(attacks) FROM ${table} WHERE ${where} GROUP BY t`;
}

export function distributionSql(scopes, placeholder) {
  const where = `scope IN (${scopes.map(placeholder).join()}) AND t >= ${placeholder(0, scopes.length)} AND t < ${placeholder(0, scopes.length + 1)}`;
  return `SELECT ${CATEGORIES.map((name) => `sum(${name})`).join()} FROM hours WHERE ${where}`;
}
