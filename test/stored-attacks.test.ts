/** What is stored of attacks that were pushed or ingested: nowhere a secret, and only short, printable text. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { lmdbStore } from '../packages/server/dist/store/lmdb/lmdb.js';
import { type Api, call } from './api.ts';
import { describeEmbedded, ndjson, Sandbox, type Server } from './sandbox.ts';

const SECRET = 'hunter2Hunter2';
/** What is not secret, to show that the test would find the secret. */
const PLAIN = 'visible-part';
const TIME = Date.now() - 3_600_000;
const HOUR = { from: TIME - 60_000, to: TIME + 60_000 };

const TOKEN = `eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.${SECRET}`;
const QUERIES = [
  `password=${SECRET}&a=${PLAIN}`,
  `pass%77ord=${SECRET}&a=${PLAIN}`,
  `user%5Bpassword%5D=${SECRET}&a=${PLAIN}`,
  `a=${PLAIN}&API_KEY='${SECRET}'--`,
  `a=${PLAIN}&b=bearer+${SECRET}`,
  `a=${PLAIN}&b=${TOKEN}`,
  `a=${PLAIN}&next=https://u:${SECRET}@www.example.com/`,
  `a=${PLAIN}&next=%2Flogin%3Ftoken%3D${SECRET}`,
  `a=${PLAIN}&next=%252Flogin%253Ftoken%253D${SECRET}`,
  `a=${PLAIN}&b=${SECRET.replaceAll('u', '%75')}`,
];
const VALUES: [variable: string, value: string][] = [
  ['ARGS:password', SECRET],
  ['ARGS:pass%77ord', SECRET],
  ['ARGS:user[password]', `x${SECRET}`],
  ['ARGS:CONFIRM', SECRET],
  ['ARGS:json.user.Secret', SECRET],
  [`ARGS:${'a.'.repeat(200)}password`, SECRET],
  ['REQUEST_HEADERS:Authorization', `Basic ${SECRET}`],
  ['REQUEST_COOKIES:theme', SECRET],
  ['REQUEST_HEADERS:X-Auth-Token', SECRET],
  ['REQUEST_BODY', `a=${PLAIN}&password=${SECRET}'`],
  ['REQUEST_BODY', `{"a":"${PLAIN}","password":{"new":"${SECRET}"}}`],
  ['REQUEST_BODY', `{"a":"${PLAIN}","pass\\u0077ord":"${SECRET}"}`],
  ['REQUEST_BODY', `<a>${PLAIN}</a><Password>${SECRET}</Password>`],
  ['REQUEST_BODY', `name="a"\r\n\r\n${PLAIN}\r\n--b\r\nname="password"\r\n\r\n${SECRET}\r\n--b--`],
  ['REQUEST_BODY', `{\\x22a\\x22:\\x22${PLAIN}\\x22,\\x22password\\x22:\\x22a ${SECRET}\\x22}`],
  ['REQUEST_BODY', `a=${PLAIN}&password=it's a ${SECRET}`],
  ['REQUEST_URI', `/${PLAIN}?token=${SECRET}`],
  ['XML:/*', `${PLAIN} ${SECRET}`],
  ['XML:/*', SECRET.slice(2, 10)],
];
const URLS = [
  ...QUERIES.map((query) => `/${PLAIN}?${query}`),
  `/${PLAIN};jsessionid=${SECRET}`,
  `/${PLAIN}/${TOKEN}`,
];
const AGENTS = ['', `Mozilla/5.0 (${PLAIN}) token=${SECRET}`, `Bearer ${SECRET} ${PLAIN}`];
const at = (n: number) => ({ url: URLS[n % URLS.length] ?? '', agent: AGENTS[n % AGENTS.length] ?? '' });

/** One event for each value, with all values that are in one request. */
const EVENTS = VALUES.map((_, n) => {
  const values = [...VALUES.slice(n), ...VALUES.slice(0, n)];
  const rules = values.map(([variable, value], i) => ({ id: String(942_100 + i), variable, value }));
  return { time: TIME, attack: 'sqli', id: `event-${n}`, url: at(n).url, user_agent: at(n).agent, rules };
});

/** The value is in the data and in the text about the operator, as in ModSecurity 3. */
const AUDIT_RECORDS = VALUES.map((_, n) => {
  const messages = [...VALUES.slice(n), ...VALUES.slice(0, n)].flatMap(([variable, value], i) => {
    const found = `Matched Data: ${value} found within ${variable}: ${value}`;
    const match = `Matched "Operator \`Rx' with parameter \`a' against variable \`${variable}' (Value: \`${value}' )`;
    return [found, '', value].map((data, j) => {
      const ruleId = String(942_000 + 3 * i + j);
      return {
        message: 'a',
        details: { ruleId, match, data, severity: '2', ver: 'OWASP_CRS/4.7.0', tags: [] },
      };
    });
  });
  const { url: uri, agent } = at(n);
  return {
    transaction: {
      unique_id: `audit-${n}`,
      time_stamp: new Date(TIME)
        .toUTCString()
        .replace(/^(...), (\d+) (...) (\d+) (.{8}).*/, '$1 $3 $2 $5 $4'),
      request: {
        method: 'POST',
        uri,
        headers: { Host: 'a.example.com', 'User-Agent': agent, Cookie: SECRET },
      },
      response: { http_code: 403 },
      messages: messages.slice(0, 32),
    },
  };
});

/** Lines of nginx, three for each request. */
const ERROR_LINES = VALUES.flatMap(([variable, value], n) => {
  const time = new Date(TIME).toISOString().replace(/^(.*)-(.*)-(.*)T(.{8}).*/, '$1/$2/$3 $4');
  const text = value.replaceAll(/[\r\n"]/g, (character) => `\\x${Buffer.from(character).toString('hex')}`);
  const path = `/${PLAIN}/${n}`;
  const matches = [
    ['ARGS:other', text],
    [variable, text],
    ['ARGS:password', SECRET],
  ];
  return matches.map(
    ([name, matched], i) =>
      `${time} [info] 34#34: *${n} [client 192.0.2.7] ModSecurity: Warning. Matched "Operator \`Rx' with parameter \`a' ` +
      `against variable \`${name}' (Value: \`${matched}' ) [file "/etc/REQUEST-942-X.conf"] [line "1"] [id "${942_100 + i}"] ` +
      `[msg "a"] [data "Matched Data: ${matched} found within ${name}: ${matched}"] [severity "2"] [ver "OWASP_CRS/4.7.0"] ` +
      `[hostname "a.example.com"] [uri "${path}"] [unique_id "error-${n}"], client: 192.0.2.7, server: a, ` +
      `request: "POST ${path}?password=${SECRET} HTTP/1.1", host: "a.example.com"`,
  );
});

const DROPPED = [`{"time":"never","Cookie":["${SECRET}"],"a":"${PLAIN}"}`, `${PLAIN} password=${SECRET}`];

describeEmbedded('stored attacks', () => {
  let sandbox: Sandbox;
  let server: Server;
  let api: Api;

  beforeEach(async () => {
    sandbox = new Sandbox();
    ({ server, api } = await sandbox.service());
  });
  afterEach(() => sandbox.clear());

  async function push(format: string, body: string | Buffer): Promise<{ accepted: number }> {
    const path = `/ingest/v1/${api.project}?source=${format}&format=${format}`;
    const headers = { 'X-Auth-Token': api.token };
    const { status, text } = await call(server.address, path, { method: 'POST', headers, body });
    expect(status).toBe(200);
    return JSON.parse(text);
  }

  /** Ends the service. */
  async function storedAttacks() {
    await server.process.kill();
    const store = lmdbStore(join(sandbox.data, 'statistics.mdb'));
    const query = { project: api.project, ...HOUR, filter: { include: {}, exclude: {} } };
    const { items } = await store.attacks({ ...query, isAscending: true, offset: 0, limit: 1_000 });
    await store.close();
    return items;
  }

  test('have no secrets', async () => {
    const events = `${ndjson(EVENTS)}${DROPPED.join('\n')}\n`;
    expect(await push('events', events)).toMatchObject({ accepted: EVENTS.length });
    const { accepted } = await push('modsecurity3-json', ndjson(AUDIT_RECORDS));
    expect(accepted).toBe(AUDIT_RECORDS.length);
    const log = sandbox.write('error.log', `${ERROR_LINES.join('\n')}\n`);
    const where = ['--data', sandbox.data, '--project', api.project];
    expect(await sandbox.run(['ingest', ...where, '--source', 'nginx', log])).toMatchObject({ status: 0 });
    const { stdout } = await sandbox.run(['source', 'list', ...where, '--json']);
    expect(stdout).toContain(PLAIN);
    expect(stdout).not.toContain(SECRET);

    const items = await storedAttacks();
    expect(items).toHaveLength(EVENTS.length + AUDIT_RECORDS.length + VALUES.length);
    for (const item of items) {
      expect(JSON.stringify(item)).toContain(PLAIN);
      expect(JSON.stringify(item).toLowerCase()).not.toContain(SECRET.toLowerCase());
    }
    const files = readdirSync(sandbox.data, { recursive: true, encoding: 'utf8' })
      .map((name) => join(sandbox.data, name))
      .filter((name) => statSync(name).isFile());
    const bytes = Buffer.concat(files.map((name) => readFileSync(name)));
    expect(bytes.includes(PLAIN)).toBe(true);
    expect(bytes.toString('latin1').toLowerCase()).not.toContain(SECRET.toLowerCase());
  });

  test('are short and printable, whatever the bytes', async () => {
    const odd = ['\0', '\u001b[2J', '\ud83d', '\udc00', '\u202e', '\u2028', '😀', 'é', '\xff'];
    const events = odd.flatMap((character, n) =>
      [1, 126, 127, 128, 509, 510, 511, 512, 2_000].map((length) => {
        const text = `${'a'.repeat(length)}${character}b`;
        const rules = Array.from({ length: 40 }, (_, i) => ({
          id: `${i}${text}`,
          variable: text,
          value: text,
        }));
        const fields = { url: `/?${text}`, user_agent: text, rules };
        return { time: TIME + n, attack: 'xss', id: `${n}${text}`, ...fields };
      }),
    );
    // The last one becomes a byte that is not UTF-8.
    const body = Buffer.from(ndjson(events).replaceAll('\xff', '\u0001'));
    for (let at = body.indexOf(1); at !== -1; at = body.indexOf(1, at)) body[at] = 0xff;
    expect(await push('events', body)).toMatchObject({ accepted: events.length });

    const items = await storedAttacks();
    // Those that are equal up to the limits are one entry.
    expect(items.reduce((sum, { count }) => sum + count, 0)).toBe(events.length);
    const sizes = (texts: (string | undefined)[]) => texts.map((text) => Buffer.byteLength(text ?? ''));
    for (const { id, url, query, userAgent, rules } of items) {
      expect(JSON.stringify([id, url, query, userAgent, rules])).not.toMatch(
        /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}]|\\u/u,
      );
      const [urlBytes = 0, queryBytes = 0] = sizes([url, query]);
      expect(urlBytes + queryBytes).toBeLessThanOrEqual(512);
      expect(rules).toHaveLength(32);
      const texts = rules.flatMap(({ variable, value }) => [variable, value]);
      expect(Math.max(...sizes([id, userAgent, ...texts]))).toBeLessThanOrEqual(128);
      expect(Math.max(...sizes(rules.map((rule) => rule.id)))).toBeLessThanOrEqual(64);
    }
    expect(await sandbox.run(['verify', '--data', sandbox.data])).toMatchObject({ status: 0 });
  });
});
