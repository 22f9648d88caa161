/**
 * What kept attacks cost, and how fast their list is, in the embedded store without HTTP. Others get the same attacks: SQLite
 * in a table with indexes; grep and GoAccess in log files, of which they read every line for each question.
 *
 *   npm run build && node bench/events.mjs             10 million attacks, 14,000 an hour; takes half an hour
 *   npm run build && node bench/events.mjs --quick     1 million
 *   node bench/events.mjs --quick list flood           only these parts; the others are size, ingest, modsecurity and peers
 *   node bench/events.mjs --kept=DIRECTORY list        keeps the attacks of the list in a directory, for the next run
 *
 * Times are by the clock; those of the processor, which other load hardly affects, are beside them.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { addressOf, countryOf, ruleOf, urlOf } from './details.mjs';
import { server, wafstat } from './paths.mjs';
import { ownMemory } from './processes.mjs';

const { lmdbStore } = await import(join(server, 'dist/store/lmdb/lmdb.js'));
const { CATEGORIES } = await import(join(server, 'dist/event.js'));

const HOUR_MS = 3_600_000;
const kept = process.argv.find((each) => each.startsWith('--kept='))?.slice('--kept='.length);
/** The attacks are of the 30 days before. */
const END = endOfAttacks();
const DAYS = 30;
const quick = process.argv.includes('--quick');
const PER_HOUR = 13_889;
const HOURS = quick ? 72 : DAYS * 24;
/** The others repeat them, to save time. */
const APPENDED_HOURS = 12;
/** Queries of each kind; fewer, but at least 10, if they take longer than 10 seconds. */
const ROUNDS = 100;
const ROUNDS_MIN = 10;
const ROUNDS_MS_MAX = 10_000;
const REPEATED = 5;
const PAGE = 50;
const FLOOD = quick ? 200_000 : 1_000_000;

const GOALS = {
  'bytes per entry': 60,
  'no filter, p99, ms': 20,
  'one source, p99, ms': 50,
  'rule and URL, p99, ms': 100,
  'ModSecurity JSON, processor time with / without': 1.15,
  'flood: longest wait of others, ms': 1_000,
};
/** Of filtered timelines and top lists. */
const COUNTS_GOALS = { 'first, ms': 500, 'repeated, processor, ms': 100 };

function goalOf(what) {
  const [, kind] = /^(?:timeline|top) .*?, (.*)$/.exec(what) ?? [];
  return GOALS[what] ?? COUNTS_GOALS[kind];
}

const RANDOM_TEXT = randomBytes(2_000_000).toString('hex');
const PARTS = {
  size: measureSize,
  list: measureList,
  ingest: measureIngest,
  modsecurity: measureModsecurity,
  flood: measureFlood,
};
const chosen = process.argv.slice(2).filter((name) => !name.startsWith('--'));

const directory = mkdtempSync(join(tmpdir(), 'wafstat-bench-events-'));
const rows = {};
try {
  for (const [name, measure] of Object.entries(PARTS)) {
    if (chosen.length === 0 || chosen.includes(name)) await measure();
  }
  if (chosen.length === 0 || chosen.includes('peers')) await measurePeers();
  console.log(`load ${loadavg()[0].toFixed(1)}`);
  console.table(
    Object.entries(rows).map(([what, value]) => ({
      what,
      value: Number(value.toPrecision(3)),
      goal: goalOf(what) ?? '',
      reached: goalOf(what) === undefined ? '' : value <= goalOf(what) ? 'yes' : 'no',
    })),
  );
} finally {
  rmSync(directory, { recursive: true });
}

/** Usual traffic: 50 sources, 1,000 URLs, 1.5 rules, each with a variable and a value of 20 bytes. */
function usualAttack(random, time) {
  const source = Math.floor(random() * 50);
  const rule = () => ({
    id: ruleOf(Math.floor(random() * 60)),
    variable: ['ARGS:q', 'ARGS:id', 'REQUEST_HEADERS:User-Agent', 'REQUEST_COOKIES:session'][
      Math.floor(random() * 4)
    ],
    value: hex(random, 20),
    severity: ['critical', 'warning'][Math.floor(random() * 2)],
  });
  const rules = random() < 0.5 ? [rule()] : [rule(), rule()];
  return {
    id: `${Math.floor(time / 1_000)}${hex(random, 8)}`,
    blocked: random() < 0.8,
    source: addressOf(source),
    country: countryOf(source),
    method: random() < 0.7 ? 'GET' : 'POST',
    url: urlOf(Math.floor(random() * 1_000)),
    status: random() < 0.8 ? 403 : 200,
    rule: rules[0].id,
    rules,
    score: 5 * rules.length,
    userAgent: ['curl/8.5.0', 'sqlmap/1.8', 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0)'][source % 3],
  };
}

/** A part of a long random text: new digits would take longer than the store. */
function hex(random, length) {
  const start = Math.floor(random() * (RANDOM_TEXT.length - length));
  return RANDOM_TEXT.slice(start, start + length);
}

/** The same attacks for every candidate. */
function attacksOf(hosts, hour, perHour, detailsOf = usualAttack) {
  const random = randomNumbers(hour);
  const start = END - (hour + 1) * HOUR_MS;
  return Array.from({ length: perHour }, (_, i) => {
    const time = start + Math.floor(((i + random()) / perHour) * HOUR_MS);
    return {
      time,
      hostId: hosts[Math.floor(random() * hosts.length)],
      request: false,
      attack: CATEGORIES[Math.floor(random() * CATEGORIES.length)],
      count: 1,
      details: detailsOf(random, time),
    };
  });
}

function randomNumbers(seed) {
  let state = Math.imul(seed + 1, 0x9e3779b1);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** The last full hour; or that of the run that kept the attacks, whose hours must still be those of the queries. */
function endOfAttacks() {
  const file = kept && join(kept, 'end');
  if (file && existsSync(file)) return Number(readFileSync(file, 'utf8'));
  return Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
}

function fileOf(name) {
  const data = join(name === 'list' && kept ? kept : directory, name);
  mkdirSync(data, { recursive: true });
  return join(data, 'statistics.mdb');
}

async function openStore(name, eventsMax) {
  const store = lmdbStore(fileOf(name), () => END, { eventsMax });
  const hostnames = Array.from({ length: 10 }, (_, i) => `www${i}.example.com`);
  return { store, hosts: await store.resolveHosts({ project: 'p', hostnames, limit: 10 }) };
}

function append(store, events, project = 'p') {
  return store.append({ project, source: { name: 's', format: 'events' }, events, dropped: {} });
}

/** 1,000 attacks an hour for 30 days, in batches of a minute; in a quick run for 3 days. */
async function measureSize() {
  const hours = quick ? 72 : DAYS * 24;
  const bytes = {};
  for (const [name, eventsMax] of [
    ['without', 0],
    ['with', undefined],
  ]) {
    const { store, hosts } = await openStore(name, eventsMax);
    for (let hour = hours - 1; hour >= 0; hour--) {
      const attacks = attacksOf(hosts, hour, 1_000);
      for (let i = 0; i < attacks.length; i += 17) await append(store, attacks.slice(i, i + 17));
    }
    await store.close();
    const before = statSync(fileOf(name)).size;
    execFileSync(process.execPath, [wafstat, 'compact', '--data', join(directory, name)]);
    bytes[name] = { before, after: statSync(fileOf(name)).size };
    rmSync(join(directory, name), { recursive: true });
  }
  rows['bytes per entry'] = (bytes.with.after - bytes.without.after) / (hours * 1_000);
  rows['bytes per entry before compact'] = (bytes.with.before - bytes.without.before) / (hours * 1_000);
}

async function measureList() {
  const isKept = kept && existsSync(join(kept, 'end'));
  const { store, hosts } = await openStore('list');
  if (!isKept) await fillList(store, hosts);
  rows['bytes per entry, 14,000 an hour, with counters'] = statSync(fileOf('list')).size / (HOURS * PER_HOUR);
  const range = { project: 'p', from: END - HOURS * HOUR_MS, to: END };
  const first = { ...range, isAscending: false, offset: 0, limit: PAGE };
  const total = HOURS * PER_HOUR;
  const { total: found } = await store.attacks({ ...first, filter: { include: {}, exclude: {} } });
  if (found !== total) throw new Error(`${found} of ${total} attacks are listed`);
  const any = (n) => Math.floor(Math.random() * n);
  const network = () => addressOf(any(50)).replace(/\d+$/, '0/24');
  const [source, rule, url] = [() => addressOf(any(50)), () => ruleOf(any(60)), () => urlOf(any(1_000))];
  const list = (choose) => () => {
    const { include = {}, exclude = {}, ...more } = choose();
    return () => store.attacks({ ...first, ...more, filter: { include, exclude } });
  };
  await measureQueries({
    'no filter': list(() => ({})),
    'one host': list(() => ({ hosts: [hosts[any(10)]] })),
    'one source': list(() => ({ include: { sources: [source()] } })),
    'one network': list(() => ({ include: { sources: [network()] } })),
    'rule and URL': list(() => ({ include: { rules: [rule()], urls: [url()] } })),
    'URL prefix': list(() => ({ include: { urls: [`${url().slice(0, 6)}*`] } })),
    'deep page': list(() => ({ offset: any(total) })),
    'not one source': list(() => ({ exclude: { sources: [source()] } })),
    'one ID': list(() => ({ include: { ids: [hex(Math.random, 18)] } })),
  });
  const hourly = Array.from({ length: HOURS + 1 }, (_, i) => range.from + i * HOUR_MS);
  const count = (by, edges, choose) => () => {
    const filter = { include: choose(), exclude: {} };
    return () => store.countAttacks({ project: 'p', edges, by, filter });
  };
  const whole = [range.from, range.to];
  const blocked = { actions: ['block'] };
  await measureQueries({
    'timeline of a source': count('actions', hourly, () => ({ sources: [source()] })),
    'timeline of a source and rule': count('actions', hourly, () => ({
      sources: [source()],
      rules: [rule()],
    })),
    'timeline of blocked GET': count('actions', hourly, () => ({ ...blocked, methods: ['GET'] })),
    'top URLs of a source': count('urls', whole, () => ({ sources: [source()] })),
    'top URLs of a source and rule': count('urls', whole, () => ({ sources: [source()], rules: [rule()] })),
    'top sources of a rule': count('sources', whole, () => ({ rules: [rule()] })),
    'top sources of a rule and URL': count('sources', whole, () => ({ rules: [rule()], urls: [url()] })),
    'top sources of blocked attacks': count('sources', whole, () => blocked),
    'top URLs of blocked attacks': count('urls', whole, () => blocked),
    'top URLs of blocked GET': count('urls', whole, () => ({ ...blocked, methods: ['GET'] })),
  });
  await store.close();
  if (!kept) rmSync(join(directory, 'list'), { recursive: true });
}

async function fillList(store, hosts) {
  const began = performance.now();
  for (let hour = APPENDED_HOURS - 1; hour >= 0; hour--)
    await append(store, attacksOf(hosts, hour, PER_HOUR));
  const seconds = (performance.now() - began) / 1_000;
  rows['attacks per second, batches of an hour'] = (APPENDED_HOURS * PER_HOUR) / seconds;
  await repeatHours(store);
  if (kept) writeFileSync(join(kept, 'end'), String(END));
}

/** Writes the blocks of the appended hours into the hours before them: their times count from the beginning of the hour. */
async function repeatHours(store) {
  const { AttackBlock } = await import(join(server, 'dist/store/attack-block.js'));
  const appended = [];
  for await (const { blocks } of store.transfer.attackHours('p'))
    appended.push(blocks.map(({ bytes }) => Buffer.from(bytes)));
  for (let i = APPENDED_HOURS; i < HOURS; i++) {
    const hour = END / HOUR_MS - 1 - i;
    const blocks = appended[i % appended.length].map((bytes) => AttackBlock.of(hour, bytes));
    await store.transfer.putAttackHour('p', { hour, blocks });
  }
}

/** `queries`: by name, what chooses values and returns a query. */
async function measureQueries(queries) {
  for (const [name, choose] of Object.entries(queries)) {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const processor = [];
    const run = async (query) => {
      const before = processorMs();
      const ms = await timed(query);
      processor.push(processorMs() - before);
      return ms;
    };
    let query = choose();
    rows[`${name}, first, ms`] = await run(query);
    rows[`${name}, first, processor, ms`] = processor.pop();
    const times = [];
    const began = performance.now();
    while (
      times.length < ROUNDS &&
      (times.length < ROUNDS_MIN || performance.now() - began < ROUNDS_MS_MAX)
    ) {
      query = choose();
      times.push(await run(query));
    }
    rows[`${name}, any values, processor, ms`] = medianOf(processor.splice(0));
    rows[`${name}, p99, ms`] = times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)];
    for (let i = 0; i < REPEATED; i++) await run(query);
    rows[`${name}, repeated, processor, ms`] = medianOf(processor);
    delay.disable();
    rows[`${name}, longest hold of the event loop, ms`] = delay.max / 1e6;
    console.error(`${name}: done, load ${loadavg()[0].toFixed(1)}`);
  }
}

function medianOf(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

function processorMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

async function timed(action) {
  const start = performance.now();
  await action();
  return performance.now() - start;
}

/** Processor time with and without kept attacks, in turns. */
async function measureIngest() {
  const kinds = {
    'access log': {
      size: 10_000,
      toEvent: ({ time, hostId }) => ({ time, hostId, request: true, attack: null, count: 1 }),
    },
    attacks: { size: 1_000, toEvent: (attack) => attack },
    'live attacks': { size: 5, toEvent: (attack) => attack },
  };
  const stores = [await openStore('zero', 0), await openStore('kept')];
  for (const [kind, { size, toEvent }] of Object.entries(kinds)) {
    const used = [0, 0];
    const batches = quick ? 40 : 200;
    for (let i = 0; i < batches; i++) {
      for (const [n, { store, hosts }] of stores.entries()) {
        const events = attacksOf(hosts, i % 24, size).map(toEvent);
        const before = process.cpuUsage();
        await append(store, events);
        const { user, system } = process.cpuUsage(before);
        used[n] += user + system;
      }
    }
    const per = batches * size;
    rows[`ingest of ${kind}, us per event without`] = used[0] / per;
    rows[`ingest of ${kind}, us per event with`] = used[1] / per;
  }
  for (const { store } of stores) await store.close();
}

/** `wafstat ingest` of an audit log, with and without kept attacks in turns. Also with 14,000 attacks an hour. */
async function measureModsecurity() {
  const records = readFileSync(join(server, 'fixtures/modsecurity3-json.log'), 'utf8')
    .split('\n')
    .filter(Boolean);
  const lines = quick ? 20_000 : 60_000;
  for (const [name, perHour] of [
    ['ModSecurity JSON', 1_000],
    ['ModSecurity JSON, 14,000 an hour', 14_000],
  ]) {
    const log = join(directory, 'modsecurity.log');
    const random = randomNumbers(perHour);
    const line = (_, i) => {
      const second = Math.floor(END / 1_000 - (lines - i) * (3_600 / perHour));
      const id = `${second}${10 + (i % 90)}.${hex(random, 6).replace(/\D/g, '1')}`;
      const [source, url] = [addressOf(Math.floor(random() * 50)), urlOf(Math.floor(random() * 1_000))];
      return records[i % records.length]
        .replace('"client_ip":"127.0.0.1"', `"client_ip":"${source}"`)
        .replace(/"unique_id":"[^"]*"/, `"unique_id":"${id}"`)
        .replace('"uri":"/', `"uri":"${url}`)
        .replaceAll(/( found within ARGS:\w+: )/g, `$1${hex(random, 12)}`);
    };
    writeFileSync(log, `${Array.from({ length: lines }, line).join('\n')}\n`);
    const used = { with: [], without: [] };
    for (let round = 0; round < (quick ? 3 : 5); round++) {
      for (const [kind, args] of [
        ['without', ['--events-max', '0']],
        ['with', []],
      ]) {
        const data = join(directory, `modsecurity-${kind}`);
        execFileSync(process.execPath, [wafstat, 'init', '--data', data, '--json']);
        const command = [wafstat, 'ingest', '--data', data, '--project', 'default', ...args, log];
        const { stderr } = spawnSync('bash', [
          ...['-c', 'TIMEFORMAT="%U %S"; time "$@" > /dev/null', 'bash', process.execPath],
          ...command,
        ]);
        const [user, system] = stderr.toString().trim().split('\n').at(-1).split(' ').map(Number);
        used[kind].push(user + system);
        rmSync(data, { recursive: true });
      }
    }
    rows[`${name}, us per line without`] = (medianOf(used.without) / lines) * 1e6;
    const ratios = used.with.map((seconds, i) => seconds / used.without[i]);
    rows[`${name}, processor time with / without`] = medianOf(ratios);
  }
}

/** One project is flooded within an hour; another one appends an attack and reads its list. */
async function measureFlood() {
  const { store, hosts } = await openStore('flood');
  const before = ownMemory(process.pid);
  let [memory, isDone, longest, longestProcessor] = [0, false, 0, 0];
  const wait = async (action) => {
    const began = processorMs();
    longest = Math.max(longest, await timed(action));
    longestProcessor = Math.max(longestProcessor, processorMs() - began);
  };
  const other = async () => {
    for (let i = 0; !isDone; i++) {
      const event = { ...attacksOf([null], 0, 1)[0], time: END - i };
      await wait(() => append(store, [event], 'other'));
      const query = {
        project: 'other',
        from: END - HOUR_MS,
        to: END + 1,
        isAscending: false,
        offset: 0,
        limit: 50,
      };
      const filter = { include: {}, exclude: {} };
      await wait(() => store.attacks({ ...query, filter }));
      memory = Math.max(memory, ownMemory(process.pid));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  };
  const others = other();
  const distinct = (random, time) => {
    const details = usualAttack(random, time);
    const rules = details.rules.map((rule) => ({
      ...rule,
      variable: hex(random, 100),
      value: hex(random, 128),
    }));
    const address = addressOf(Math.floor(random() * 2 ** 32));
    return { ...details, source: address, url: `/${hex(random, 400)}`, rules, userAgent: hex(random, 128) };
  };
  const size = 1_000;
  const start = END - 2 * HOUR_MS;
  const seconds = await timed(async () => {
    for (let i = 0; i < FLOOD / size; i++) {
      const events = attacksOf(hosts, i, size, distinct);
      for (const [n, event] of events.entries())
        event.time = start + Math.floor(((i * size + n) / FLOOD) * HOUR_MS);
      await append(store, events);
    }
  });
  isDone = true;
  await others;
  const query = { project: 'p', from: 0, to: END, isAscending: false, offset: 0, limit: 50 };
  rows['flood: entries kept'] = (
    await store.attacks({ ...query, filter: { include: {}, exclude: {} } })
  ).total;
  rows['flood: attacks per second'] = FLOOD / (seconds / 1_000);
  rows['flood: memory, MB more'] = memory - before;
  rows['flood: file, MB'] = statSync(fileOf('flood')).size / 1e6;
  rows['flood: longest wait of others, ms'] = longest;
  rows['flood: longest wait of others, processor, ms'] = longestProcessor;
  await store.close();
  rmSync(join(directory, 'flood'), { recursive: true });
}

async function measurePeers() {
  const { DatabaseSync } = await import('@photostructure/sqlite');
  const path = join(directory, 'sqlite.db');
  const db = new DatabaseSync(path);
  db.exec(`PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA mmap_size = 4294967296;
    CREATE TABLE attacks (n INTEGER PRIMARY KEY, time INTEGER, host TEXT, category TEXT, blocked INTEGER, id TEXT,
      source TEXT, country TEXT, method TEXT, url TEXT, status INTEGER, score INTEGER, user_agent TEXT);
    CREATE TABLE rules (n INTEGER, rule TEXT, variable TEXT, value TEXT, severity TEXT)`);
  const insert = db.prepare(`INSERT INTO attacks VALUES (${Array(13).fill('?').join()})`);
  const insertRule = db.prepare('INSERT INTO rules VALUES (?, ?, ?, ?, ?)');
  const log = openSync(join(directory, 'attacks.jsonl'), 'w');
  const access = openSync(join(directory, 'access.log'), 'w');
  const hosts = Array.from({ length: 10 }, (_, i) => hex(randomNumbers(i), 32));
  let n = 0;
  const began = performance.now();
  for (let hour = HOURS - 1; hour >= 0; hour--) {
    const attacks = attacksOf(hosts, hour, PER_HOUR);
    db.exec('BEGIN');
    for (const { time, hostId, attack, details: d } of attacks) {
      n++;
      const { id, source, country, method, url, status, score, userAgent } = d;
      insert.run(
        n,
        time,
        hostId,
        attack,
        Number(d.blocked),
        id,
        source,
        country,
        method,
        url,
        status,
        score,
        userAgent,
      );
      for (const rule of d.rules) insertRule.run(n, rule.id, rule.variable, rule.value, rule.severity);
    }
    db.exec('COMMIT');
    // A million lines are enough for programs that read all of them.
    if (hour >= 72) continue;
    writeSync(log, attacks.map((attack) => `${JSON.stringify(attack)}\n`).join(''));
    writeSync(access, attacks.map(accessLine).join(''));
  }
  closeSync(log);
  closeSync(access);
  db.exec(`CREATE INDEX by_time ON attacks (time); CREATE INDEX by_source ON attacks (source, time);
    CREATE INDEX by_url ON attacks (url, time); CREATE INDEX by_rule ON rules (rule, n);
    CREATE INDEX by_attack ON rules (n); ANALYZE`);
  rows['SQLite: attacks per second'] = n / ((performance.now() - began) / 1_000);
  rows['SQLite: bytes per entry'] = statSync(path).size / n;
  const any = (count) => Math.floor(Math.random() * count);
  const page = (where, values) => {
    const all = `FROM attacks a WHERE time >= ? AND time < ? ${where}`;
    const range = [END - HOURS * HOUR_MS, END];
    db.prepare(`SELECT count(*) ${all}`).all(...range, ...values);
    db.prepare(`SELECT * ${all} ORDER BY time DESC LIMIT ${PAGE}`).all(...range, ...values);
  };
  const queries = {
    'no filter': () => page('', []),
    'one source': () => page('AND source = ?', [addressOf(any(50))]),
    'rule and URL': () =>
      page('AND url = ? AND EXISTS (SELECT 1 FROM rules r WHERE r.n = a.n AND rule = ?)', [
        urlOf(any(1_000)),
        ruleOf(any(60)),
      ]),
  };
  for (const [name, query] of Object.entries(queries)) {
    const times = [];
    for (let i = 0; i < 20; i++) times.push(await timed(async () => query()));
    rows[`SQLite: ${name}, median, ms`] = times.sort((a, b) => a - b)[10];
  }
  db.close();
  const file = join(directory, 'attacks.jsonl');
  rows['grep: one source, 1 million lines, ms'] = await timed(async () => grep(file, `"${addressOf(7)}"`));
  rows['grep: rule and URL, 1 million lines, ms'] = await timed(async () =>
    grep(file, `"url":"${urlOf(7)}".*"id":"${ruleOf(7)}"`),
  );
  try {
    const args = [
      join(directory, 'access.log'),
      '--log-format=COMBINED',
      '-o',
      join(directory, 'report.json'),
    ];
    rows['GoAccess: report, 1 million lines, ms'] = await timed(async () =>
      execFileSync('goaccess', args, { stdio: 'ignore' }),
    );
  } catch {
    console.error('GoAccess is not installed');
  }
}

function grep(file, pattern) {
  execFileSync('grep', ['-c', pattern, file], { env: { LC_ALL: 'C' } });
}

function accessLine({ time, details: { source, method, url, status, userAgent } }) {
  const [, day, month, year, clock] = /, (\d+) (\w+) (\d+) (\S+)/.exec(new Date(time).toUTCString());
  return `${source} - - [${day}/${month}/${year}:${clock} +0000] "${method} ${url} HTTP/1.1" ${status} 512 "-" "${userAgent}"\n`;
}
