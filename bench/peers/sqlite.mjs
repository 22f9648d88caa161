/** SQLite in the process of the server: tables without row IDs, clustered by their key. */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { COUNTS, distributionSql, TABLES, timelineSql, upsertSql } from './tables.mjs';

const FILE = 'sqlite.db';

/** Uses the sqlite3 command: three times faster than inserting row by row. */
export async function load(directory) {
  rmSync(join(directory, FILE), { force: true });
  const columns = COUNTS.map((name) => `${name} INTEGER`).join();
  const commands = TABLES.flatMap((table) => [
    `CREATE TABLE ${table} (scope INTEGER, t INTEGER, ${columns}, PRIMARY KEY (scope, t)) WITHOUT ROWID;`,
    `.import ${join(directory, table)}.csv ${table}`,
  ]);
  const settings = ['PRAGMA journal_mode = OFF;', 'PRAGMA synchronous = OFF;', '.mode csv'];
  execFileSync('sqlite3', [join(directory, FILE), ...settings, ...commands, 'ANALYZE;'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

export async function open(directory, isLive) {
  const db = new DatabaseSync(join(directory, FILE), { readOnly: !isLive });
  db.exec('PRAGMA mmap_size = 4294967296');
  if (isLive) db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF');
  const statements = new Map();
  function all(sql, values) {
    let statement = statements.get(sql);
    if (statement === undefined) {
      statement = db.prepare(sql);
      statement.setReturnArrays(true);
      statements.set(sql, statement);
    }
    return statement.all(...values);
  }
  const mark = () => '?';
  return {
    timeline: async (table, scopes, from, to) => all(timelineSql(table, scopes, mark), [...scopes, from, to]),
    distribution: async (scopes, from, to) => all(distributionSql(scopes, mark), [...scopes, from, to])[0],
    async append(rows) {
      db.exec('BEGIN');
      for (const table of TABLES) {
        const values = `VALUES (?, ?, ${COUNTS.map(() => '?')})`;
        const statement = db.prepare(upsertSql(table, values));
        for (const row of rows[table]) statement.run(...row);
      }
      db.exec('COMMIT');
    },
    close: async () => db.close(),
  };
}
