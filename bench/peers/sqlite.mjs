/** SQLite in the process that answers: tables without row IDs, so that the key is the table. */
import { createReadStream, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { DatabaseSync } from '@photostructure/sqlite';
import { COUNTS, distributionSql, TABLES, timelineSql } from './tables.mjs';

const FILE = 'sqlite.db';

export async function load(folder) {
  rmSync(join(folder, FILE), { force: true });
  const db = new DatabaseSync(join(folder, FILE));
  db.exec('PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF');
  for (const table of TABLES) {
    const columns = COUNTS.map((name) => `${name} INTEGER`).join();
    db.exec(`CREATE TABLE ${table} (scope INTEGER, t INTEGER, ${columns}, PRIMARY KEY (scope, t)) WITHOUT ROWID`);
    const insert = db.prepare(`INSERT INTO ${table} VALUES (?, ?${', ?'.repeat(COUNTS.length)})`);
    db.exec('BEGIN');
    for await (const line of createInterface(createReadStream(join(folder, `${table}.csv`)))) {
      insert.run(...line.split(',').map(Number));
    }
    db.exec('COMMIT');
  }
  db.exec('ANALYZE');
  db.close();
}

export async function open(folder) {
  const db = new DatabaseSync(join(folder, FILE), { readOnly: true });
  db.exec('PRAGMA mmap_size = 4294967296');
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
    close: async () => db.close(),
  };
}
