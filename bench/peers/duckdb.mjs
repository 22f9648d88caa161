/** DuckDB in the process of the server. Loaded in key order, because it indexes the minimum and maximum of each block. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { COUNTS, distributionSql, TABLES, timelineSql } from './tables.mjs';

const FILE = 'duck.db';

export async function load(directory) {
  rmSync(join(directory, FILE), { force: true });
  const instance = await DuckDBInstance.create(join(directory, FILE));
  const connection = await instance.connect();
  for (const table of TABLES) {
    const columns = COUNTS.map((name) => `${name} INTEGER`).join();
    await connection.run(`CREATE TABLE ${table} (scope INTEGER, t INTEGER, ${columns})`);
    await connection.run(`COPY ${table} FROM '${join(directory, table)}.csv' (HEADER false)`);
  }
  await connection.run('CHECKPOINT');
  connection.closeSync();
  instance.closeSync();
}

export async function open(directory, isLive) {
  const access = { access_mode: isLive ? 'READ_WRITE' : 'READ_ONLY' };
  const instance = await DuckDBInstance.create(join(directory, FILE), access);
  const connection = await instance.connect();
  const writing = await instance.connect();
  const statements = new Map();
  /** One at a time: a connection runs one statement, which is bound before. */
  let turn = Promise.resolve();
  function all(sql, values) {
    turn = turn.then(async () => {
      let statement = statements.get(sql);
      if (statement === undefined) {
        statement = await connection.prepare(sql);
        statements.set(sql, statement);
      }
      for (const [i, value] of values.entries()) statement.bindInteger(i + 1, value);
      return (await statement.runAndReadAll()).getRows();
    });
    return turn;
  }
  const mark = (_value, i) => `$${i + 1}`;
  return {
    timeline: (table, scopes, from, to) => all(timelineSql(table, scopes, mark), [...scopes, from, to]),
    distribution: async (scopes, from, to) =>
      (await all(distributionSql(scopes, mark), [...scopes, from, to]))[0],
    /** Adds rows, which queries sum up: updating some by a key takes twice as long. */
    async append(rows) {
      await writing.run('BEGIN');
      for (const table of TABLES) {
        const appender = await writing.createAppender(table);
        for (const row of rows[table]) {
          for (const value of row) appender.appendInteger(value);
          appender.endRow();
        }
        appender.closeSync();
      }
      await writing.run('COMMIT');
    },
    close: async () => instance.closeSync(),
  };
}
