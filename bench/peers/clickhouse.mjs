/** ClickHouse from Debian (18.16): a separate server on a free port, queried over HTTP with binary responses. */
import { spawn } from 'node:child_process';
import { createReadStream, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { COUNTS, distributionSql, TABLES, timelineSql } from './tables.mjs';

const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });

export async function load(directory) {
  rmSync(join(directory, 'clickhouse'), { recursive: true, force: true });
  const { run, stop } = await start(directory);
  for (const table of TABLES) {
    const columns = COUNTS.map((name) => `${name} UInt32`).join();
    await run(
      `CREATE TABLE ${table} (scope UInt32, t UInt32, ${columns}) ENGINE = MergeTree PARTITION BY tuple() ` +
        'ORDER BY (scope, t) SETTINGS index_granularity = 1024',
    );
    await run(`INSERT INTO ${table} FORMAT CSV`, createReadStream(join(directory, `${table}.csv`)));
    await run(`OPTIMIZE TABLE ${table} FINAL`);
  }
  await stop();
}

export async function open(directory) {
  const { run, stop } = await start(directory);
  const mark = (values) => (_value, i) => String(values[i]);
  return {
    async timeline(table, scopes, from, to) {
      const sql = timelineSql(table, scopes, mark([...scopes, from, to]));
      // Sums are 64 bits wide, columns 32.
      const numbers = await run(`SELECT t, toUInt32(_1), toUInt32(_2) FROM (${named(sql)}) FORMAT RowBinary`);
      return Array.from({ length: numbers.length / 3 }, (_, i) => numbers.subarray(i * 3, i * 3 + 3));
    },
    async distribution(scopes, from, to) {
      const sql = distributionSql(scopes, mark([...scopes, from, to])).replaceAll(
        /sum\(\w+\)/g,
        'toUInt32($&)',
      );
      return run(`${sql} FORMAT RowBinary`);
    },
    /** Adds rows, which queries sum up. */
    async append(rows) {
      for (const table of TABLES) {
        await run(`INSERT INTO ${table} FORMAT CSV`, Readable.from([`${rows[table].join('\n')}\n`]));
      }
    },
    close: stop,
  };
}

function named(sql) {
  return sql.replace(/SELECT t, (\S+), (\S+) FROM/, 'SELECT t, $1 AS _1, $2 AS _2 FROM');
}

export async function start(directory) {
  const home = join(directory, 'clickhouse');
  mkdirSync(join(home, 'tmp'), { recursive: true });
  const [port, httpPort] = [await freePort(), await freePort()];
  writeFileSync(join(home, 'users.xml'), USERS);
  writeFileSync(join(home, 'config.xml'), config(home, port, httpPort));
  const child = spawn('clickhouse-server', [`--config-file=${join(home, 'config.xml')}`], {
    stdio: 'ignore',
    cwd: home,
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const run = (sql, body) => post(httpPort, sql, body);
  for (let attempt = 0; ; attempt++) {
    try {
      await run('SELECT toUInt32(1) FORMAT RowBinary');
      break;
    } catch (error) {
      if (attempt > 300 || child.exitCode !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  return {
    url: `http://127.0.0.1:${httpPort}`,
    run,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

/** Returns 32-bit numbers: the queries select nothing else. */
function post(port, sql, body) {
  return new Promise((resolve, reject) => {
    const path = body ? `/?query=${encodeURIComponent(sql)}` : '/';
    const request = http.request({ port, host: '127.0.0.1', agent, method: 'POST', path }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const bytes = Buffer.concat(chunks);
        if (response.statusCode !== 200) reject(new Error(`ClickHouse: ${bytes}`));
        else resolve(new Uint32Array(Uint8Array.from(bytes).buffer, 0, bytes.length >> 2));
      });
    });
    request.on('error', reject);
    if (body) body.pipe(request);
    else request.end(sql);
  });
}

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

const USERS = `<yandex>
  <profiles><default><max_threads>2</max_threads><log_queries>0</log_queries></default></profiles>
  <users><default><password></password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></default></users>
  <quotas><default/></quotas>
</yandex>
`;

function config(home, port, httpPort) {
  return `<yandex>
  <logger><level>error</level><log>${home}/log</log><errorlog>${home}/errors</errorlog></logger>
  <listen_host>127.0.0.1</listen_host><tcp_port>${port}</tcp_port><http_port>${httpPort}</http_port>
  <path>${home}/</path><tmp_path>${home}/tmp/</tmp_path>
  <mark_cache_size>536870912</mark_cache_size><uncompressed_cache_size>1073741824</uncompressed_cache_size>
  <users_config>${home}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
</yandex>
`;
}
