/** The rollup tables of every peer, and the two queries. Each peer adds its types, key and dialect. */
import { CATEGORIES } from '../data.mjs';

export const TABLES = ['minutes', 'hours'];
export const COUNTS = ['requests', 'attacks', ...CATEGORIES];

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
