/** The client commands against a service in the same process. */
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { ATTACK_TYPES, type Host, PAGE_CODES } from '@wafstat/client';
import { canonicalRequest, stringToSign } from '@wafstat/signer';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../../../../test/process.ts';
import { PAGE_CODES as STORED_PAGE_CODES } from '../../event.ts';
import { CSV_COLUMNS } from '../../http/statistics/event-dump.ts';
import type { Io } from '../command.ts';
import { runProgram } from '../program.ts';

const PASSWORD = 'correct horse battery staple';
/** Within the retention time, and not in the future. */
const MINUTE = Math.floor(Date.now() / 60_000) * 60_000 - 3_600_000;
const RANGE = ['--from', String(MINUTE), '--to', String(MINUTE + 120_000)];

const SCAN = { source: '203.0.113.7', url: '/login?a=1', rule: '942100', country: 'DE' };
const PROBE = { source: '2001:db8::7', url: '/search', rule: '=1+1', country: 'FR' };

let directory: string;
let url: string;
let project: string;
let place: string[];
const stopping = new AbortController();
let served: Promise<number>;

interface RunContext {
  env?: Record<string, string>;
  stdin?: string;
  /** Makes standard output a terminal of this size. */
  columns?: number;
}

/** Streams in memory instead of those of the process. */
function memoryIo({ env = {}, stdin = '', columns }: RunContext = {}, stop = new AbortController().signal) {
  const stdout = Object.assign(new PassThrough(), columns ? { isTTY: true, columns, rows: 24 } : {});
  const stderr = new PassThrough();
  const printed = { out: '', err: '' };
  stdout.on('data', (chunk) => {
    printed.out += chunk;
  });
  stderr.on('data', (chunk) => {
    printed.err += chunk;
  });
  const input = Object.assign(new PassThrough(), { isTTY: false });
  input.end(stdin);
  const io: Io = { stdin: input, stdout, stderr, env: { HOME: directory, ...env }, now: Date.now, stop };
  return { io, printed };
}

async function run(argv: string[], context?: RunContext) {
  const { io, printed } = memoryIo(context);
  const status = await runProgram(argv, io);
  return { status, ...printed };
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'wafstat-client-'));
  const data = join(directory, 'data');
  const created = await run(['init', '--data', data, '--password-stdin', '--json'], { stdin: PASSWORD });
  project = JSON.parse(created.out).project_id;
  const events = [
    { time: MINUTE, host: 'www.example.com', count: 1_200, status: 502, url: '/shop?a', bytes_out: 120_000 },
    { time: MINUTE + 60_000, host: 'www.example.com', attack: 'sqli', count: 30, ...SCAN },
    { time: MINUTE + 119_999, host: 'www.example.com', attack: 'xss', ...PROBE },
  ];
  await writeFile(join(directory, 'events'), events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  await run(['ingest', '--data', data, '--project', project, join(directory, 'events')]);
  const host = ['--data', data, '--project', project, '--json'];
  await run(['host', 'add', 'quiet.example.com', '--id', 'quiet-1', ...host]);
  await run(['host', 'add', 'twin', '--id', 'twin-1', ...host]);
  await run(['host', 'add', 'twin.example.com', '--id', 'twin', ...host]);
  const { io, printed } = memoryIo({}, stopping.signal);
  served = runProgram(['serve', '--data', data, '--listen', '127.0.0.1:0'], io);
  while (!printed.out.includes('listens on')) await once(io.stdout, 'data');
  url = /http:\S+/.exec(printed.out)?.[0] ?? '';
  place = ['--url', url, '--project', project];
});

afterAll(async () => {
  stopping.abort();
  await served;
  await rm(directory, { recursive: true });
});

async function getToken(): Promise<string> {
  const identity = {
    methods: ['password'],
    password: { user: { name: 'admin', password: PASSWORD, domain: { name: 'default' } } },
  };
  const body = JSON.stringify({ auth: { identity, scope: { project: { id: project } } } });
  const response = await fetch(`${url}/v3/auth/tokens`, { method: 'POST', body });
  return response.headers.get('X-Subject-Token') ?? '';
}

/** A service that records requests, and has the same response for all but one call. */
async function listen(
  body: object | ((request: IncomingMessage) => object),
  qps: object = [],
): Promise<{ address: string; requests: IncomingMessage[] }> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    const isQps = request.url?.includes('/qps/timeline');
    response.end(JSON.stringify(isQps ? qps : typeof body === 'function' ? body(request) : body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  // A server that listens on a port has an address of this form.
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

/** A service that records the requests, and has these responses by page. */
async function listenForPages(bodyOf: (page: number) => object) {
  const requests: (URL & { method?: string | undefined })[] = [];
  const { address } = await listen((request) => {
    const requested = new URL(request.url ?? '', 'http://service');
    requests.push(Object.assign(requested, { method: request.method }));
    return bodyOf(Number(requested.searchParams.get('page')));
  });
  return { address, requests };
}

describe('queries', () => {
  const password = { stdin: `${PASSWORD}\n` };
  const signIn = ['--user', 'admin', '--password-stdin'];

  test('a timeline with a password, as a table in local time', async () => {
    const { status, out, err } = await run(
      ['timeline', ...place, ...signIn, ...RANGE, '--timezone', '-05:30'],
      password,
    );
    const local = (time: number) =>
      new Date(time - 5.5 * 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
    expect(err).toBe('');
    expect(status).toBe(0);
    expect(out.split('\n')).toEqual([
      'until (-05:30)       requests  attacks',
      `${local(MINUTE + 60_000)}     1,200        0`,
      `${local(MINUTE + 120_000)}        31       31`,
      'total                   1,231       31',
      '',
    ]);
  });

  test('types with a token from the environment, as CSV', async () => {
    const { out } = await run(['types', ...place, ...RANGE, '--output', 'csv'], {
      env: { WAFSTAT_TOKEN: await getToken() },
    });
    expect(out).toMatch(/^category,count\r\nxss,1\r\nsqli,30\r\ncmdi,0\r\n/);
    expect(out.split('\r\n')).toHaveLength(15);
  });

  test('json is the response of the service, byte for byte, and a line end', async () => {
    const token = await getToken();
    for (const [command, path] of [
      ['timeline', 'event/timeline'],
      ['timeline --by category', 'overviews/attack/timeline'],
      ['types', 'event/attack/type'],
      ['peak', 'event/request/peak'],
      ['status', 'overviews/situation'],
      ['top urls --top 5', 'overviews/attack/url'],
    ] as const) {
      const query = `from=${MINUTE}&to=${MINUTE + 120_000}&timezone=%2B00%3A00`;
      const get = () =>
        fetch(`${url}/v1/${project}/waf/${path}?${query}`, { headers: { 'X-Auth-Token': token } });
      // The service sheds a query that waited while the machine paused; the command retries it.
      const response = await eventually(
        () => get().then((each) => (each.status === 503 ? undefined : each)),
        'a response',
      );
      const json = ['--token', token, '--output', 'json'];
      const { out } = await run([...command.split(' '), ...place, ...RANGE, ...json]);
      expect(out).toBe(`${await response.text()}\n`);
    }
  });

  test('a terminal gets a plot', async () => {
    const { out } = await run(['timeline', ...place, ...signIn, ...RANGE], { ...password, columns: 80 });
    expect(out).toContain('1,231 requests');
    expect(out).toContain('\u001b[36m');
    const env = { NO_COLOR: '1', WAFSTAT_PASSWORD: PASSWORD };
    const plain = await run(['types', ...place, '--user', 'admin', ...RANGE], { env, columns: 80 });
    expect(plain.out).toMatch(/^sqli +30 +96\.8% {2}█+$/m);
    expect(plain.out).not.toContain('\u001b');
  });

  const totalOf = async (...options: string[]) => {
    const { out, err } = await run(['types', ...place, ...signIn, ...RANGE, ...options], password);
    return { total: /^total +(\d+)$/m.exec(out)?.[1], err };
  };

  test('--host filters by ID or name, and can be repeated', async () => {
    const { out } = await run(['hosts', ...place, ...signIn, '--output', 'json'], password);
    const { id } = JSON.parse(out).items.find(({ hostname }: Host) => hostname === 'www.example.com');
    const attacks = { total: '31', err: '' };
    const none = { total: '0', err: '' };
    expect(await totalOf('--host', id)).toEqual(attacks);
    expect(await totalOf('--host', '0'.repeat(32))).toEqual(none);
    expect(await totalOf('--host', '0'.repeat(32), '--host', id)).toEqual(attacks);
    expect(await totalOf('--host', 'WWW.example.com.')).toEqual(attacks);
    expect(await totalOf('--host', 'quiet.example.com')).toEqual(none);
    expect(await totalOf('--host', 'quiet-1,www.example.com', 'twin-1')).toEqual(attacks);
  });

  test('a host name that does not exist, or means two hosts, is an error', async () => {
    for (const name of ['ww.example.com', 'www']) {
      expect(await totalOf('--host', name)).toEqual({
        total: undefined,
        err: `wafstat: there is no host '${name}' in this project: run 'wafstat hosts' to list the hosts\n`,
      });
    }
    expect((await totalOf('--host', 'a,,b')).err).toBe(
      "wafstat: --host is 'a,,b', but must be IDs or names of hosts\n",
    );
  });

  test('--project accepts a name, whatever the credentials', async () => {
    const data = ['--data', join(directory, 'data')];
    const created = await run(['key', 'add', ...data, '--user', 'admin', '--json']);
    const { access, secret } = JSON.parse(created.out);
    const ways: [string[], RunContext][] = [
      [signIn, password],
      [['--ak', access, '--sk-stdin'], { stdin: secret }],
      [[], { env: { WAFSTAT_TOKEN: await getToken() } }],
    ];
    for (const [options, context] of ways) {
      const query = (name: string) =>
        run(['types', '--url', url, '--project', name, ...RANGE, ...options], context);
      const known = await query('default');
      expect(known.err).toBe('');
      expect(known.out).toMatch(/^total +31$/m);
      const unknown = await query('shop');
      expect(unknown).toMatchObject({ status: 1, out: '' });
      expect(unknown.err).toMatch(/^wafstat: .*project 'shop'.*\n$/);
    }
  });

  test('a service that cannot list projects gets what may be an ID as an ID', async () => {
    const { address, requests } = await listen({ requests: [], attacks: [] });
    const query = ['timeline', '--url', address, '--token', 't', '--project'];
    expect(await run([...query, 'shop_1'])).toMatchObject({ status: 0, err: '' });
    expect(requests.at(-1)?.url).toMatch(/^\/v1\/shop_1\/waf\/event\/timeline\?/);
    expect((await run([...query, 'my shop'])).err).toBe(
      "wafstat: cannot find the project 'my shop': the service returned status 200\n",
    );
  });

  test('a project name that two domains have is an error with the IDs', async () => {
    const data = ['--data', join(directory, 'data')];
    await run(['domain', 'add', 'other', ...data]);
    const added = await run(['project', 'add', 'default', '--domain', 'other', ...data, '--json']);
    const { id } = JSON.parse(added.out);
    await run(['user', 'grant', 'admin', '--project', id, ...data]);
    onTestFinished(async () => {
      await run(['project', 'delete', id, '--yes', ...data]);
    });
    const query = ['types', '--url', url, '--project', 'default', ...RANGE];
    const { err } = await run(query, { env: { WAFSTAT_TOKEN: await getToken() } });
    expect(err).toBe(
      `wafstat: several domains have a project 'default': use one of the IDs ${[id, project].toSorted().join(', ')}\n`,
    );
    // A password is for one domain.
    expect((await run([...query, ...signIn], password)).err).toBe('');
  });

  test('variables that other commands once read do not change a query', async () => {
    const env = {
      WAFSTAT_HOST: 'shop.example.com',
      WAFSTAT_TO: 'postgres',
      WAFSTAT_USER: 'nobody',
      WAFSTAT_DOMAIN: 'nowhere',
      WAFSTAT_TIMEZONE: 'Europe/Berlin',
    };
    const { status, out, err } = await run(['types', ...place, ...RANGE], {
      env: { ...env, WAFSTAT_TOKEN: await getToken() },
    });
    expect({ status, err }).toEqual({ status: 0, err: '' });
    expect(out).toMatch(/^total +31$/m);
  });

  test('days and output are those of an IANA time zone, also in the service', async () => {
    const zone = ['--timezone', 'europe/berlin'];
    const query = (...args: string[]) => run([...args, ...place, ...signIn, ...zone], password);
    const day = ['--from', '2026-10-25', '--to', '2026-10-25'];
    const csv = (await query('timeline', ...day, '--output', 'csv')).out.trimEnd().split('\r\n').slice(1);
    // 25 hours, by five minutes.
    expect(csv).toHaveLength(300);
    expect(csv[0]).toBe('2026-10-25T00:05:00.000+02:00,0,0');
    expect(csv.slice(34, 38).map((line) => line.slice(11, 29))).toEqual([
      '02:55:00.000+02:00',
      '02:00:00.000+01:00',
      '02:05:00.000+01:00',
      '02:10:00.000+01:00',
    ]);
    expect(csv.at(-1)).toBe('2026-10-26T00:00:00.000+01:00,0,0');
    expect((await query('types', ...day)).out.split('\n')[0]).toBe(
      '2026-10-25 00:00 to 2026-10-26 00:00 (Europe/Berlin)',
    );
    for (const command of ['timeline', 'peak', 'hosts', 'sources'])
      expect((await query(command)).out).toContain('(Europe/Berlin)');
    expect((await query('top', 'rules', ...day)).out).toContain('(Europe/Berlin)');
    expect((await run(['types', ...place, '--timezone', 'Europe/Berln', '--token', 't'])).err).toBe(
      "wafstat: --timezone is 'Europe/Berln', but must be an offset like +08:00, from -12:00 to +14:00, or an IANA time zone name like Europe/Berlin\n",
    );
  });

  test('a timeline by category, as a table, CSV and plot', async () => {
    const output = async (format: string) =>
      (
        await run(
          ['timeline', '--by', 'category', ...place, ...signIn, ...RANGE, '--output', format],
          password,
        )
      ).out;
    const [header = '', first = '', second = '', total = ''] = (await output('table')).split('\n');
    const cells = (line: string) => line.trim().split(/ {2,}/);
    expect(cells(header)).toEqual(['until (+00:00)', ...ATTACK_TYPES]);
    const until = (time: number) => new Date(time).toISOString().slice(0, 19).replace('T', ' ');
    const zeros = Array<string>(11).fill('0');
    expect(cells(first)).toEqual([until(MINUTE + 60_000), '0', '0', ...zeros]);
    expect(cells(second)).toEqual([until(MINUTE + 120_000), '1', '30', ...zeros]);
    expect(cells(total)).toEqual(['total', '1', '30', ...zeros]);
    expect(await output('csv')).toBe(
      [
        `time,${ATTACK_TYPES.join()}`,
        `${new Date(MINUTE + 60_000).toISOString()},0,0,${zeros.join()}`,
        `${new Date(MINUTE + 120_000).toISOString()},1,30,${zeros.join()}`,
        '',
      ].join('\r\n'),
    );
    const plot = (await output('plot')).split('\n');
    expect(plot[1]).toMatch(/^category +attacks +peak │ 31 attacks/);
    expect(plot[2]).toMatch(/^sqli +30 +30 │ +█+$/);
    expect(plot[3]).toMatch(/^xss +1 +1 │ +█+$/);
  });

  test('the peak is the busiest second', async () => {
    const output = async (format: string) =>
      (await run(['peak', ...place, ...signIn, ...RANGE, '--output', format], password)).out;
    const minute = (time: number) => new Date(time).toISOString().slice(0, 19).replace('T', ' ');
    expect(JSON.parse(await output('json'))).toEqual({ qps: 1_200 });
    expect((await output('table')).split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['from (+00:00)', 'to', 'requests in the busiest second', 'in the minute from'],
      [minute(MINUTE), minute(MINUTE + 120_000), '1,200', minute(MINUTE)],
      [''],
    ]);
    expect(await output('csv')).toBe(
      `from,to,qps,minute\r\n${[MINUTE, MINUTE + 120_000].map((time) => new Date(time).toISOString()).join()},1200,` +
        `${new Date(MINUTE).toISOString()}\r\n`,
    );
    const host = ['--host', 'quiet.example.com', '--output', 'json'];
    expect(JSON.parse((await run(['peak', ...place, ...signIn, ...RANGE, ...host], password)).out)).toEqual({
      qps: 0,
    });
  });

  test('the status is a sentence, and the bursts if there are any', async () => {
    const [sentence = '', ...rest] = (
      await run(['status', ...place, ...signIn, ...RANGE], password)
    ).out.split('\n');
    expect(sentence).toBe('Quiet: 31 attacks in the last hour.');
    expect(rest).toEqual(['']);
    const burst = {
      from: MINUTE,
      to: MINUTE + 600_000,
      open: false,
      category: 'cc',
      host: 'www.example.com',
    };
    const counts = { host_id: 'h', source: '192.0.2.58', attacks: 4_800, blocked: 4_200, times_usual: 12 };
    const unknown = { category: null, host: null, host_id: null, source: null, times_usual: null };
    const { address } = await listen({
      sentence: 'Since 16:40: attacks.',
      state: 'attack',
      bursts: [
        { ...burst, ...counts },
        { ...burst, ...counts, ...unknown, open: true },
      ],
    });
    const status = ['status', '--url', address, '--project', 'a'.repeat(32), '--token', 't'];
    const minute = new Date(MINUTE).toISOString().slice(0, 16).replace('T', ' ');
    const cells = (await run(status)).out.split('\n').map((line) => line.split(/ {2,}/));
    expect(cells).toEqual([
      ['Since 16:40: attacks.'],
      ...[
        ['burst from (+00:00)', 'length', 'category', 'host', 'source', 'attacks', 'blocked', 'times usual'],
      ],
      [minute, '10 minutes', 'cc', 'www.example.com', '192.0.2.58', '4,800', '87.5%', '12'],
      [minute, '10 minutes so far', '-', '-', '-', '4,800', '87.5%', '-'],
      [''],
    ]);
    const times = [MINUTE, MINUTE + 600_000].map((time) => new Date(time).toISOString()).join();
    expect((await run([...status, '--output', 'csv'])).out).toBe(
      'from,to,open,category,host_id,host,source,attacks,blocked,times_usual\r\n' +
        `${times},false,cc,h,www.example.com,192.0.2.58,4800,4200,12\r\n${times},true,,,,,4800,4200,\r\n`,
    );
  });

  test('the client knows the codes of error pages', () => {
    expect(PAGE_CODES).toEqual(STORED_PAGE_CODES);
  });

  test('response codes, in total and over time', async () => {
    const codes = await run(['codes', ...place, ...signIn, ...RANGE, '--output', 'csv'], password);
    expect(codes).toMatchObject({ status: 0, out: 'code,requests\r\n502,1200\r\nnone,31\r\n' });
    const plot = await run(['codes', '--upstream', ...place, ...signIn, ...RANGE], {
      ...password,
      columns: 80,
    });
    expect(plot.out).toMatch(/, 1,231 requests.*\n502 +1,200 +97\.5% .*█/);
    const args = ['timeline', '--by', 'code', ...place, ...signIn, ...RANGE];
    const lines = (await run([...args, '--output', 'csv'], password)).out.split('\r\n');
    expect(lines[0]).toBe('time,502,none');
    expect(lines.slice(1, 3).map((line) => line.split(',').slice(1).join())).toEqual(['1200,0', '0,31']);
    expect((await run(args, { ...password, columns: 80 })).out).toMatch(
      /code +requests +peak │ 1,231 requests/,
    );
    const none = [...args, '--host', 'quiet.example.com'];
    expect((await run(none, { ...password, columns: 80 })).out).toContain(': no requests');
    expect((await run([...args, '--rule', '1'], password)).err).toContain('--rule requires --by category');
  });

  test('bytes per second over time', async () => {
    const { status, out } = await run(
      ['traffic', ...place, ...signIn, ...RANGE, '--output', 'csv'],
      password,
    );
    const [header, ...rows] = out.split('\r\n');
    expect([status, header]).toEqual([0, 'time,received bytes/s,sent bytes/s,both']);
    expect(rows.slice(0, 2).map((row) => row.split(',').slice(1).join())).toEqual(['0,2000,2000', '0,0,0']);
    const peak = await run(['traffic', '--peak', ...place, ...signIn, ...RANGE], password);
    expect(peak.out).toContain('2,000');
  });

  test('the pages with the most errors', async () => {
    const pages = (...args: string[]) =>
      run(['top', 'pages', ...args, ...place, ...signIn, ...RANGE], password);
    const [heading, ...rows] = (await pages('--code', '502')).out.split('\n');
    expect(heading).toContain(': 1,200 errors, 1 page');
    expect(rows.slice(0, 2).map((row) => row.split(/ {2,}/))).toEqual([
      ['page', 'requests', 'share'],
      ['www.example.com/shop', '1,200', '100.0%'],
    ]);
    expect((await pages()).out).toContain(': 0 errors, 0 pages');
    expect((await pages('--category', 'xss')).err).toContain("--category selects attacks, but 'pages' lists");
    const other = await run(['top', 'urls', '--code', '404', ...place, ...signIn, ...RANGE], password);
    expect(other.err).toContain("--code requires the list 'pages'");
  });

  describe('top', () => {
    const [from, to] = [MINUTE, MINUTE + 120_000];
    const minute = (time: number) => new Date(time).toISOString().slice(0, 16).replace('T', ' ');
    const top = (...args: string[]) => run(['top', ...args, ...place, ...signIn, ...RANGE], password);
    const lines = async (...args: string[]) => (await top(...args)).out.split('\n').slice(0, -1);

    test.each([
      ['sources', '2 sources', 'source', '203.0.113.7', '2001:db8::/64'],
      ['urls', '2 URLs', 'URL', 'www.example.com/login', 'www.example.com/search'],
      ['rules', '2 rules', 'rule', '942100 SQL injection by libinjection', '=1+1'],
      ['countries', '2 countries', 'country', 'DE', 'FR'],
    ])('%s as a table, with the range that it covers', async (list, distinct, header, first, second) => {
      const [heading, ...rows] = await lines(list);
      expect(heading).toBe(
        `${minute(from)} to ${minute(to)} (+00:00): 31 attacks with a ${header}, ${distinct}`,
      );
      expect(rows.map((row) => row.split(/ {2,}/))).toEqual([
        [header, 'attacks', 'share'],
        [first, '30', '96.8%'],
        [second, '1', '3.2%'],
      ]);
    });

    test('filters by category and host, and limits the rows', async () => {
      expect((await lines('sources', '--category', 'xss,cc', '--category', 'lfi')).slice(1)).toEqual([
        'source         attacks   share',
        '2001:db8::/64        1  100.0%',
      ]);
      expect(await lines('rules', '--host', 'quiet.example.com')).toEqual([
        expect.stringContaining(': 0 attacks with a rule, 0 rules'),
        'rule  attacks  share',
      ]);
      const [heading, ...rows] = await lines('urls', '--top', '1');
      expect(heading).toContain('31 attacks with a URL, 2 URLs');
      expect(rows).toHaveLength(2);
    });

    test('as CSV, where no key can be a formula', async () => {
      const range = [from, to].map((time) => new Date(time).toISOString()).join();
      expect(await top('rules', '--output', 'csv')).toMatchObject({
        status: 0,
        out: `from,to,rule,attacks,error\r\n${range},942100,30,0\r\n${range},'=1+1,1,0\r\n`,
      });
      const { out } = await top('urls', '--output', 'csv', '--top', '1');
      const [header, row] = out.split('\r\n');
      expect(header).toBe('from,to,host_id,host,url,attacks,error');
      expect(row).toMatch(/,[0-9a-f]{32},www\.example\.com,\/login,30,0$/);
    });

    test('networks have a name', async () => {
      const items = [{ key: 'AS64500', name: 'Example, Inc.', num: 3, error: 0 }];
      const list = { total: 1, attacks: 3, distinct_is: 'exact', error: 0, from, to, items };
      const { address } = await listen(list);
      const query = ['top', 'networks', '--url', address, '--token', 't', '--project', 'p', ...RANGE];
      expect((await run(query)).out).toMatch(/^AS64500 Example, Inc\. +3 +100\.0%$/m);
      const csv = (await run([...query, '--output', 'csv'])).out.split('\r\n');
      expect(csv[0]).toBe('from,to,network,name,attacks,error');
      expect(csv[1]).toMatch(/,AS64500,"Example, Inc\.",3,0$/);
      expect((await top('networks')).err).toContain('there is no list of networks');
    });

    test('as bars, with bounds, and without control characters of a service', async () => {
      const items = [
        { key: '10.0.0.1', num: 50, error: 0 },
        { key: '\u001b[31m\u202e1', num: 25, error: 1_500 },
      ];
      const { address } = await listen({
        ...{ total: 7_000, attacks: 100, distinct_is: 'estimate', error: 1_500, from, to },
        items,
      });
      const query = ['top', 'sources', '--url', address, '--token', 't', '--project', 'p', ...RANGE];
      const plot = await run(query, { columns: 60, env: { NO_COLOR: '1' } });
      expect(plot.out.split('\n').slice(0, -1)).toEqual([
        `${minute(from)} to ${minute(to)} (+00:00): 100 attacks`,
        'with a source, about 7,000 sources',
        `10.0.0.1           50          50.0%  ${'█'.repeat(21)}`,
        `\\u001b[31m\\u202e1  25  +1,500  25.0%  ${'█'.repeat(10)}▌`,
      ]);
      const table = await run(query);
      expect(table.out.split('\n')[1]).toMatch(/^source +attacks +error +share$/);
      expect(table.out).toContain('+1,500');
      expect(table.out).not.toContain('\u001b');
    });

    test('says that earlier hours are not kept', async () => {
      const list = { total: 0, attacks: 0, distinct_is: 'exact', error: 0, from, to, items: [] };
      const { address } = await listen(list);
      const query = ['top', 'urls', '--url', address, '--token', 't', '--project', 'p', '--to', String(to)];
      const notKept = 'the server has deleted earlier top lists (--details-retention)';
      expect((await run([...query, '--last', '90d'])).out).toContain(notKept);
      expect((await run([...query, '--from', String(from + 1)])).out).not.toContain(notKept);
    });

    test('says that the whole range is too old', async () => {
      const list = { total: 0, attacks: 0, distinct_is: 'exact', error: 0, from: to, to, items: [] };
      const { address } = await listen(list);
      const query = ['top', 'urls', '--url', address, '--token', 't', '--project', 'p'];
      const { out } = await run([...query, '--from', '2026-01-01', '--to', '2026-01-01']);
      expect(out.split('\n')[0]).toBe(
        '2026-01-01 00:00 to 2026-01-02 00:00 (+00:00): the server has deleted top lists of that time (--details-retention)',
      );
    });

    test('says why a number of values is only a minimum', async () => {
      const list = { total: 520, attacks: 9_000, distinct_is: 'minimum', error: 3, from, to, items: [] };
      const { address } = await listen(list);
      const { out } = await run(['top', 'urls', '--url', address, '--token', 't', '--project', 'p']);
      expect(out).toContain('9,000 attacks with a URL, 520 or more URLs (too many to count by category)');
    });

    test('an unknown list or category is a usage error', async () => {
      expect(await top('hosts')).toMatchObject({
        status: 2,
        err: "wafstat: the list is 'hosts', but must be one of sources, networks, urls, rules, countries, pages\n",
      });
      const { status, err } = await top('rules', '--category', 'SQLI', '--top', '0');
      expect(status).toBe(2);
      expect(err).toMatch(
        /^wafstat: --category is 'SQLI', but must be one of xss, sqli, .*\nwafstat: --top is '0'/,
      );
      expect(await top()).toMatchObject({
        status: 2,
        err: "wafstat: <sources|networks|urls|rules|countries|pages> is missing: see 'wafstat top --help'\n",
      });
    });
  });

  describe('filters of attacks', () => {
    const rows = async (...args: string[]) => {
      const { out, err } = await run([...args, ...place, ...signIn, ...RANGE, '--output', 'csv'], password);
      expect(err).toBe('');
      return out.split('\r\n').slice(1, -1);
    };

    test.each([
      [['--rule', '942100'], 30, 0],
      [['--not-country', 'DE'], 0, 1],
      [['--category', 'xss'], 0, 1],
      [['--source', '203.0.113.0/24', '--attack-url', '/search'], 0, 0],
    ])('of types and of the timeline by category: %j', async (filter, sqli, xss) => {
      const types = await rows('types', ...filter);
      const selected = types.filter((row) => !row.endsWith(',0'));
      expect(selected).toEqual([...(xss ? [`xss,${xss}`] : []), ...(sqli ? [`sqli,${sqli}`] : [])]);
      const points = (await rows('timeline', '--by', 'category', ...filter)).map((row) => row.split(','));
      const sums = points.reduce((sum, row) => sum + row.slice(1).reduce((all, n) => all + Number(n), 0), 0);
      expect(sums).toBe(sqli + xss);
    });

    test('of top lists', async () => {
      const [url, ...others] = await rows('top', 'urls', '--country', 'FR', '--not-method', 'POST');
      expect(url).toMatch(/,www\.example\.com,\/search,1,0$/);
      expect(others).toEqual([]);
    });

    test('are refused by the timeline of requests', async () => {
      const args = ['timeline', '--rule', '942100', ...place, ...signIn];
      expect(await run(args, password)).toEqual({
        status: 2,
        out: '',
        err: 'wafstat: --rule requires --by category, because it selects attacks, not requests\n',
      });
    });
  });

  describe('events', () => {
    const events = (...args: string[]) => run(['events', ...args, ...place, ...signIn, ...RANGE], password);
    const time = (ms: number) => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
    const sources = async (...args: string[]) => {
      const { out, err } = await events(...args, '--output', 'json');
      expect(err).toBe('');
      return out.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line).sip]));
    };

    test('are a table, newest first', async () => {
      const { status, out, err } = await events();
      expect({ status, err }).toEqual({ status: 0, err: '' });
      const [title, ...rows] = out.split('\n').slice(0, -1);
      expect(title).toMatch(/ \(\+00:00\): 2 events, 31 attacks$/);
      expect(rows.map((row) => row.split(/ {2,}/))).toEqual([
        ['time (+00:00)', 'host', 'source', 'request', 'category', 'rule', 'action', 'attacks', 'id'],
        [
          time(MINUTE + 119_999),
          'www.example.com',
          '2001:db8::/64',
          '/search',
          'xss',
          '=1+1',
          'log',
          '1',
          expect.stringMatching(/^\S+$/),
        ],
        [
          time(MINUTE + 60_000),
          'www.example.com',
          '203.0.113.7',
          '/login?a=1',
          'sqli',
          '942100',
          'log',
          '30',
          expect.stringMatching(/^\S+$/),
        ],
      ]);
    });

    test('of all hosts but one are those of the others', async () => {
      expect(await sources('--not-host', 'www.example.com')).toEqual([]);
      expect(await sources('--not-host', 'quiet-1')).toHaveLength(2);
      const unknown = await events('--not-host', 'none.example.com');
      expect(unknown).toMatchObject({
        status: 1,
        err: expect.stringContaining("no host 'none.example.com'"),
      });
    });

    test('read the hosts once for --host and --not-host', async () => {
      const item = { id: 'h1', hostname: 'a.example', time: MINUTE, attack: 'xss', action: 'log' };
      const counts = { matched_attacks: 1, attacks: 1, kept: 1, kept_attacks: 1, complete: true };
      const { address, requests } = await listenForPages(() => ({ total: 1, items: [item], ...counts }));
      const query = ['events', '--url', address, '--token', 't', '--project', 'a'.repeat(32)];
      const { status } = await run([...query, '--host', 'a.example', '--not-host', 'h1']);
      expect(status).toBe(0);
      expect(requests.map(({ pathname }) => pathname.replace(/.*waf/, ''))).toEqual(['/instance', '/event']);
      expect(requests[1]?.search).toContain('&hosts=h1&ndomain=a.example&');
    });

    test('stop at --limit, and --all prints every page', async () => {
      const { out } = await events('--limit', '1');
      expect(out).toContain(': 2 events, 31 attacks, the newest 1 event\n');
      expect(out.trimEnd().split('\n')).toHaveLength(3);
      expect(await sources('--limit', '1')).toEqual(['2001:db8::/64']);
      expect(await sources('--all')).toEqual(['2001:db8::/64', '203.0.113.7']);
    });

    test.each([
      [
        ['--source', '203.0.113.0/24'],
        ['--not-source', '2001:db8::/32'],
      ],
      [
        ['--category', 'sqli,cc'],
        ['--not-category', 'xss'],
      ],
      [
        ['--rule', '942100'],
        ['--not-rule', '=1+1'],
      ],
      [
        ['--attack-url', '/log*'],
        ['--not-url', '/search', '--not-url', '/health,*'],
      ],
      [
        ['--country', 'DE', '--country', 'NL'],
        ['--not-country', 'FR'],
      ],
      [
        ['--host', 'www.example.com', '--source', '203.0.113.7'],
        ['--category', 'xss,sqli', '--not-rule', '=1+1'],
      ],
    ])('are filtered by %j, or by %j', async (include, exclude) => {
      expect(await sources(...include)).toEqual(['203.0.113.7']);
      expect(await sources(...exclude)).toEqual(['203.0.113.7']);
    });

    test('as CSV, where no text is a formula', async () => {
      const { out } = await events('--output', 'csv', '--all');
      const [header = '', newest = '', older = ''] = out.split('\r\n');
      expect(header).toBe(CSV_COLUMNS.join());
      expect(newest).toMatch(
        /,2001:db8::\/64,FR,xss,log,,,1,'=1\+1,www\.example\.com,[^,]+,,\/search,\/search,,,$/,
      );
      expect(older).toMatch(/,DE,sqli,log,,,30,942100,www\.example\.com,[^,]+,,\/login,\/login\?a=1,,,$/);
    });

    test('one of them is shown with all that is kept', async () => {
      const [line = ''] = (await events('--rule', '942100', '--output', 'json')).out.split('\n');
      const { id } = JSON.parse(line);
      const event = (...args: string[]) => run(['event', id, ...place, ...signIn, ...args], password);
      const { status, out, err } = await event();
      expect({ status, err }).toEqual({ status: 0, err: '' });
      for (const row of [
        /^source {3,}203\.0\.113\.7$/m,
        /^country {3,}DE$/m,
        /^request {3,}\/login\?a=1$/m,
        /^attacks {3,}30$/m,
        /^rule +severity +variable +value$/m,
        /^942100 +- +- +-$/m,
      ])
        expect(out).toMatch(row);
      expect(JSON.parse((await event('--output', 'json')).out)).toEqual(JSON.parse(line));
      const unknown = await run(['event', 'none', ...place, ...signIn], password);
      expect(unknown).toMatchObject({ status: 1, out: '', err: expect.stringContaining('WAF.4000') });
    });

    test('pages have the same end, and the last line says how many attacks are not kept', async () => {
      const pages = [1_000, 1_000, 500].map((length, page) =>
        Array.from({ length }, (_, i) => ({
          id: `${page}-${i}`.padEnd(128, 'x'),
          time: MINUTE,
          attack: 'xss',
          action: 'log',
        })),
      );
      const { address, requests } = await listenForPages((page) => {
        const items = pages[page - 1] ?? [];
        const kept = { kept: 16_384, kept_attacks: 16_390, complete: false };
        return { total: 2_500, items, matched_attacks: 2_500, attacks: 1_200_000, ...kept };
      });
      const query = ['events', '--url', address, '--token', 't', '--project', 'a'.repeat(32), '--all'];
      for (const [output, lines] of [
        ['json', 2_500],
        ['csv', 2_501],
        ['table', 2_502],
      ] as const) {
        requests.length = 0;
        const { status, out, err } = await run([...query, '--output', output, '--not-url', '/a,b']);
        expect({ status, lines: out.trimEnd().split('\n').length }).toEqual({ status: 0, lines });
        expect(err).toBe(
          'wafstat: 16,390 of 1,200,000 attacks of this range are kept (the server limits or deletes events)\n',
        );
        expect(requests.map(({ searchParams }) => searchParams.get('page'))).toEqual(['1', '2', '3']);
        expect(new Set(requests.map(({ searchParams }) => searchParams.get('to'))).size).toBe(1);
        for (const { searchParams } of requests) expect(searchParams.getAll('nurls')).toEqual(['/a,b']);
        expect(out).toContain(pages[2]?.[499]?.id);
      }
    });

    test('--delete asks the service to delete those of the sources, and nothing less', async () => {
      const { address, requests } = await listenForPages(() => ({ deleted: 1_234 }));
      const query = ['events', '--delete', '--url', address, '--token', 't', '--project', 'a'.repeat(32)];
      expect(await run([...query, '--source', '192.0.2.7', '--source', '2001:db8::/64', '--yes'])).toEqual({
        status: 0,
        out: 'deleted 1,234 events from 192.0.2.7, 2001:db8::/64\n',
        err: '',
      });
      expect(requests.map(({ method, pathname, search }) => [method, pathname, search])).toEqual([
        ['DELETE', `/v1/${'a'.repeat(32)}/waf/event`, '?sips=192.0.2.7&sips=2001%3Adb8%3A%3A%2F64'],
      ]);
      expect(await run([...query, '--rule', '1', '--last', '1h'])).toEqual({
        status: 2,
        out: '',
        err:
          'wafstat: --yes is required without a terminal, because nobody can confirm\n' +
          'wafstat: --delete requires --source\n' +
          'wafstat: --delete deletes all attacks of --source: remove --last, --rule\n',
      });
      expect(requests).toHaveLength(1);
    });

    test('--url is the service, and the message for a path says what to use', async () => {
      expect(await run(['events', '--url', '/login*', '--token', 't', '--project', 'p'])).toEqual({
        status: 2,
        out: '',
        err: "wafstat: --url is '/login*', but must be the URL of the service: for paths, use --attack-url\n",
      });
    });

    test('mistakes in filters are usage errors', async () => {
      const { status, err } = await events(
        ...['--source', '192.0.2.0/33', '--status', '4', '--action', 'drop', '--not-category', 'SQLI'],
        ...['--all', '--limit', '5', '--not-host', 'a', '--not-host', 'b'],
      );
      expect(status).toBe(2);
      for (const problem of [
        "--source is '192.0.2.0/33', but must be an address like 192.0.2.7, or a network",
        "--status is '4', but must be a response code like 403",
        "--action is 'drop', but must be one of block, log",
        "--not-category is 'SQLI', but must be one of xss",
        "--not-host is 'a,b', but must be one host",
        'use only one of --all and --limit',
      ])
        expect(err).toContain(`wafstat: ${problem}`);
    });
  });

  test('hosts and sources are lists with a header', async () => {
    const hosts = await run(['hosts', ...place, ...signIn, '--timezone', '+08:00'], password);
    expect(hosts).toMatchObject({ status: 0, err: '' });
    const time = '\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d';
    const lines = hosts.out.split('\n');
    expect(lines).toEqual([
      expect.stringMatching(/^id +name +registered \(\+08:00\)$/),
      expect.stringMatching(new RegExp(`^quiet-1 +quiet\\.example\\.com +${time}$`)),
      expect.stringMatching(new RegExp(`^twin-1 +twin +${time}$`)),
      expect.stringMatching(new RegExp(`^twin +twin\\.example\\.com +${time}$`)),
      expect.stringMatching(new RegExp(`^[0-9a-f]{32} +www\\.example\\.com +${time}$`)),
      '',
    ]);
    const sources = await run(['sources', ...place, ...signIn], password);
    const seen = (ms: number) => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
    expect(sources.out.split('\n')).toEqual([
      expect.stringMatching(
        /^name +format +events +without host +first event \(\+00:00\) +last event +dropped$/,
      ),
      expect.stringMatching(
        new RegExp(`^default +events +3 +0 +${seen(MINUTE)} +${seen(MINUTE + 119_999)} +-$`),
      ),
      '',
    ]);
  });

  test('hosts and sources as CSV and JSON', async () => {
    const output = async (command: string, format: string) =>
      (await run([command, ...place, ...signIn, '--output', format], { ...password, columns: 80 })).out;
    expect(await output('hosts', 'csv')).toMatch(
      /^id,name,registered\r\nquiet-1,quiet\.example\.com,\d{4}-\d\d-\d\dT[\d:.]+Z\r\n/,
    );
    expect(await output('sources', 'csv')).toMatch(
      /^id,name,format,events,without_host,first_seen,last_seen,dropped\r\n\w+,default,events,3,0,.*,\r\n$/,
    );
    expect(JSON.parse(await output('hosts', 'json'))).toMatchObject({
      total: 4,
      items: [{ id: 'quiet-1', hostname: 'quiet.example.com' }, {}, {}, {}],
    });
    expect(JSON.parse(await output('sources', 'json'))).toMatchObject({
      total: 1,
      items: [{ name: 'default', events: 3 }],
    });
    const { status, err } = await run(['hosts', ...place, ...signIn, '--output', 'plot'], password);
    expect({ status, err }).toEqual({
      status: 2,
      err: "wafstat: --output is 'plot', but must be one of table, json, csv\n",
    });
  });

  test('an error is one sentence with the error code and the request ID', async () => {
    const wrong = await run(['types', ...place, ...RANGE, '--token', 'x']);
    expect(wrong).toMatchObject({ status: 1, out: '' });
    expect(wrong.err).toMatch(/^wafstat: .*\(WAF\.9001, request ID \w+\)\n$/);
    const password = await run(['types', ...place, ...signIn], { stdin: 'wrong' });
    expect(password).toMatchObject({ status: 1, err: expect.stringMatching(/^wafstat: .*wrong.*\n$/) });
    const nowhere = await run(['types', '--url', 'http://127.0.0.1:9', '--project', 'p', '--token', 't']);
    expect(nowhere).toMatchObject({ status: 1, err: expect.stringContaining('got no response') });
  });

  test.each([
    [['--from', '2026-07-02T00:00:00Z', '--to', '1'], '--from (2026-07-02T00:00:00Z) is after --to (1)'],
    [
      ['--from', '9999-01-01T00:00:00Z'],
      '--from (9999-01-01T00:00:00Z) is in the future: give --to or --last',
    ],
  ])('a reversed range is reported as it was typed: %j', async (range, problem) => {
    const { status, err } = await run(['types', ...place, ...range, '--token', 'x']);
    expect({ status, err }).toEqual({ status: 2, err: `wafstat: ${problem}\n` });
  });

  test('all mistakes are reported at once', async () => {
    const { status, err } = await run([
      'timeline',
      '--url',
      url,
      '--timezone',
      '8',
      '--from',
      'noon',
      '--sk-stdin',
    ]);
    expect(status).toBe(2);
    expect(err.match(/^wafstat: /gm)).toHaveLength(5);
    expect(err).toContain(
      "--timezone is '8', but must be an offset like +08:00, from -12:00 to +14:00, or an IANA",
    );
  });
});

describe('with an access key', () => {
  const KEY = { access: 'AKEXAMPLE', secret: 'secret of the key' };

  test('of a user, the service responds', async () => {
    const created = await run(['key', 'add', '--data', join(directory, 'data'), '--user', 'admin', '--json']);
    const { access, secret } = JSON.parse(created.out);
    const { out, err } = await run(['types', ...place, ...RANGE, '--ak', access, '--sk-stdin'], {
      stdin: secret,
    });
    expect(err).toBe('');
    expect(out).toMatch(/^total +31$/m);
  });

  test.each([
    ['standard input', ['--sk-stdin'], { stdin: `${KEY.secret}\n` }],
    ['the environment', [], { env: { WAFSTAT_SK: KEY.secret } }],
  ])('from %s, all requests are signed', async (_origin, flags, context) => {
    const projects = [{ id: 'p1', name: 'shop' }];
    const items = [{ id: 'h1', hostname: 'a', timestamp: 0 }];
    const { address, requests } = await listen({ requests: [], attacks: [], projects, total: 1, items });
    const argv = ['timeline', '--url', address, '--project', 'shop', '--ak', KEY.access, ...flags];
    expect(await run([...argv, '--host', 'a', '--timezone', '+08:00'], context)).toMatchObject({
      status: 0,
      err: '',
    });
    const paths = requests.map(({ url = '' }) => url.split('?')[0]);
    expect(paths).toEqual(['/v3/auth/projects', '/v1/p1/waf/instance', '/v1/p1/waf/event/timeline']);
    for (const request of requests) expect(request.headers.authorization).toBe(authorizationOf(request));
  });

  /** What the header must be, stage by stage. */
  function authorizationOf({ method = '', url: target = '', headers }: IncomingMessage): string {
    const [path = '', query = ''] = target.split('?');
    const names = ['accept', 'host', 'x-sdk-date'];
    const canonical = canonicalRequest({
      method,
      path,
      query,
      headers: Object.fromEntries(names.map((name) => [name, String(headers[name])])),
      bodyHash: createHash('sha256').update('').digest('hex'),
    });
    const hash = createHash('sha256').update(canonical).digest('hex');
    const signature = createHmac('sha256', KEY.secret).update(
      stringToSign(String(headers['x-sdk-date']), hash),
    );
    return `SDK-HMAC-SHA256 Access=${KEY.access}, SignedHeaders=${names.join(';')}, Signature=${signature.digest('hex')}`;
  }
});

describe('a hostile service', () => {
  /** ESC, the one-character CSI, DEL, and a bidirectional override: all but the first are raw in valid JSON. */
  const EVIL = '\u001b]0;owned\u0007\u009b31m\u007f\u202ex';
  const RAW = /(?![\r\n])[\p{Cc}\p{Cf}]/u;
  const series = [{ time: 60_000, num: EVIL }];
  const source = { id: EVIL, name: EVIL, format: EVIL, hosts: [], events: EVIL, without_host: 0 };
  const body = {
    requests: series,
    attacks: series,
    ...Object.fromEntries(ATTACK_TYPES.map((type) => [type, EVIL])),
    qps: EVIL,
    ...{
      state: EVIL,
      sentence: EVIL,
      bursts: [{ from: 0, to: 1, category: EVIL, host: EVIL, source: EVIL }],
    },
    total: 1,
    items: [
      { ...source, hostname: EVIL, timestamp: 0, dropped: { [EVIL]: 1 }, first_seen: 0, last_seen: null },
    ],
  };
  const rules = [{ id: EVIL, variable: EVIL, value: EVIL, severity: EVIL }];
  const attack = {
    id: EVIL,
    time: 0,
    host: EVIL,
    host_id: EVIL,
    sip: EVIL,
    region: EVIL,
    request_line: EVIL,
  };
  const kept = {
    ...{ total: 1, attacks: 1, kept: 1, complete: true },
    items: [{ ...attack, attack: EVIL, rule: EVIL, payload: EVIL, action: EVIL, user_agent: EVIL, rules }],
  };

  test.each([['events'], ['event', 'x']])('does not control the terminal in %s', async (...command) => {
    const { address } = await listen(kept);
    const place = ['--url', address, '--project', 'a'.repeat(32), '--token', 't'];
    for (const output of command[0] === 'events' ? ['table', 'csv', 'json'] : ['table', 'json']) {
      for (const columns of [80, undefined]) {
        const context = columns === undefined ? {} : { columns };
        const { status, out, err } = await run([...command, ...place, '--output', output], context);
        expect({ status, err }).toEqual({ status: 0, err: '' });
        expect(out).toContain('owned');
        expect(out).not.toMatch(RAW);
      }
    }
  });

  test.each(['status', 'timeline', 'types', 'peak', 'hosts', 'sources'])(
    'does not control the terminal in %s',
    async (name) => {
      const { address } = await listen(body, [{ key: 'ACCESS', timeline: series }]);
      const place = ['--url', address, '--project', 'a'.repeat(32), '--token', 't'];
      for (const output of ['table', 'csv', 'json']) {
        const { status, out, err } = await run([name, ...place, '--output', output], { columns: 80 });
        expect({ status, err }).toEqual({ status: 0, err: '' });
        expect(out).not.toMatch(RAW);
      }
      if (['timeline', 'types'].includes(name)) {
        const plot = await run([name, ...place, '--output', 'plot'], { columns: 80, env: { NO_COLOR: '1' } });
        expect(plot.out).toContain(' to ');
        expect(plot.out).not.toMatch(RAW);
      }
      const piped = await run([name, ...place, '--output', 'csv']);
      expect(piped.out).not.toMatch(RAW);
      const json = JSON.parse((await run([name, ...place, '--output', 'json'], { columns: 80 })).out);
      expect(JSON.stringify(json)).toContain(JSON.stringify(EVIL));
    },
  );

  const ITEM = { id: 'a', name: 'a', hostname: 'a', format: 'a', events: 1, without_host: 0, timestamp: 0 };
  test.each([
    ['status', { state: 'quiet', sentence: '', bursts: [null] }],
    ['timeline', { requests: [null], attacks: [null] }],
    ['timeline', { requests: [{ time: 1e300, num: 1 }], attacks: [{ time: 1e300, num: 1 }] }],
    ['hosts', { total: 1, items: [null] }],
    ['hosts', { total: 1, items: [{ ...ITEM, timestamp: 1e300 }] }],
    ['sources', { total: 1, items: [ITEM] }],
    ['sources', { total: 1, items: ['a'] }],
  ])('gets one sentence for a malformed response to %s: %j', async (name, malformed) => {
    const { address } = await listen(malformed);
    const place = ['--url', address, '--project', 'a'.repeat(32), '--token', 't'];
    for (const output of ['table', 'csv']) {
      const { status, out, err } = await run([name, ...place, '--output', output]);
      expect({ status, out }).toEqual({ status: 1, out: '' });
      expect(err).toMatch(/^wafstat: the response of http:\S+ is malformed: [^\n]+\n$/);
    }
  });

  test('does not control the terminal by an error message', async () => {
    const { address } = await listen({ error: { message: EVIL } });
    for (const credentials of [
      ['--token', 't'],
      ['--user', 'u', '--password-stdin'],
    ]) {
      const query = ['types', '--url', address, '--project', 'my shop', ...credentials];
      const { status, out, err } = await run(query, { stdin: 'p' });
      expect({ status, out }).toEqual({ status: 1, out: '' });
      expect(err).toMatch(/^wafstat: cannot .* 'my shop'.*owned/);
      expect(err).not.toMatch(RAW);
    }
  });
});

describe('profiles', () => {
  const profileOf = async (name: string) =>
    JSON.parse(await readFile(join(directory, '.config/wafstat/profiles.json'), 'utf8'))[name];

  test('are created from options, and options win over them', async () => {
    const flags = ['--user', 'admin', '--password-stdin'];
    const created = await run(['configure', '--profile', 'local', ...place, ...flags], { stdin: PASSWORD });
    expect(created).toMatchObject({ status: 0, err: '' });
    const query = ['types', '--profile', 'local', ...RANGE];
    expect((await run(query)).out).toMatch(/^total +31$/m);
    expect(
      (await run(query, { env: { WAFSTAT_TOKEN: 'x', WAFSTAT_URL: 'http://127.0.0.1:9' } })).status,
    ).toBe(0);
    expect((await run([...query, '--token', 'x'])).err).toContain('WAF.9001');
    const { err } = await run([...query, '--url', 'http://127.0.0.1:9']);
    expect(err).toContain('http://127.0.0.1:9/');
    expect(err).toContain('ECONNREFUSED 127.0.0.1:9 (is the service running?)');
  });

  test('keep what is not changed', async () => {
    const configure = ['configure', '--no-check', '--profile', 'kept'];
    await run([...configure, ...place, '--ak', 'a'], { env: { WAFSTAT_SK: 's' } });
    await run([...configure, '--token', 't']);
    expect(await profileOf('kept')).toEqual({ url, project, credentials: { kind: 'token', token: 't' } });
  });

  test('are saved only if the service accepts them', async () => {
    const flags = ['--user', 'admin', '--password-stdin'];
    const configure = ['configure', '--profile', 'checked', ...flags];
    const saved = await run([...configure, '--url', url, '--project', 'default'], { stdin: PASSWORD });
    expect(saved).toMatchObject({ status: 0, err: '' });
    const profile = await profileOf('checked');
    const attempts: [options: string[], password: string, reason: string][] = [
      [place, 'wrong password', 'The username or password is wrong'],
      [['--url', url, '--project', 'nowhere'], PASSWORD, "cannot log in to the project 'nowhere'"],
      [['--url', 'http://127.0.0.1:9', '--project', project], PASSWORD, 'http://127.0.0.1:9/'],
    ];
    for (const [options, stdin, reason] of attempts) {
      const { status, out, err } = await run([...configure, ...options], { stdin });
      expect({ status, out }).toEqual({ status: 1, out: '' });
      expect(err).toContain(reason);
      expect(err).toMatch(/; the profile was not saved \(--no-check saves it without a test\)\n$/);
      expect(await profileOf('checked')).toEqual(profile);
    }
  });

  test('are not created from incomplete options', async () => {
    expect(await run(['configure', '--profile', 'half', '--url', url])).toMatchObject({
      status: 2,
      err:
        'wafstat: --project (or WAFSTAT_PROJECT) is required\n' +
        'wafstat: credentials are required: use --ak with --sk-stdin, --user with --password-stdin, or --token\n',
    });
  });

  test('are created by prompts on a terminal, which do not echo secrets', async () => {
    const { io, printed } = memoryIo();
    const terminal = Object.assign(new PassThrough(), { isTTY: true });
    const configured = runProgram(['configure', '--profile', 'asked'], { ...io, stdin: terminal });
    let seen = 0;
    const answer = async (prompt: string, text: string) => {
      while (!printed.err.slice(seen).includes(prompt)) await once(io.stderr, 'data');
      seen = printed.err.length;
      terminal.write(`${text}\r`);
    };
    await answer('URL of the service [http://127.0.0.1:8080]: ', 'nowhere');
    await answer('URL of the service [http://127.0.0.1:8080]: ', url);
    await answer('project, by name or ID [default]: ', project);
    await answer('log in with password, key (an access key) or token [password]: ', 'password');
    await answer('user [admin]: ', '');
    await answer('domain of the user [default]: ', '');
    await answer('password: ', PASSWORD);
    expect(await configured).toBe(0);
    expect(printed.err).toContain('must be a URL like https://waf.example.com');
    expect(printed.err).toContain('admin');
    expect(printed.err).not.toContain(PASSWORD);
    const credentials = { kind: 'password', user: 'admin', domain: 'default', password: PASSWORD };
    expect(await profileOf('asked')).toEqual({ url, project, credentials });
  });

  test.each(['\r', '\n', '\r\n'])(
    'are created from lines pasted at once that end with %j',
    async (lineEnd) => {
      const { io, printed } = memoryIo();
      const terminal = Object.assign(new PassThrough(), { isTTY: true });
      const configured = runProgram(['configure', '--profile', 'pasted', '--no-check'], {
        ...io,
        stdin: terminal,
      });
      const lines = ['http://127.0.0.1:1', 'shop', 'password', 'Jörg', '', 'geheim', 'wafstat types', ''];
      const bytes = Buffer.from(lines.join(lineEnd));
      // Cut inside a character.
      terminal.write(bytes.subarray(0, bytes.indexOf('ö') + 1));
      terminal.write(bytes.subarray(bytes.indexOf('ö') + 1));
      expect(await configured).toBe(0);
      expect(printed.err).toContain('Jörg');
      expect(printed.err).not.toMatch(/geheim|wafstat types/);
      expect(await profileOf('pasted')).toEqual({
        url: 'http://127.0.0.1:1',
        project: 'shop',
        credentials: { kind: 'password', user: 'Jörg', domain: 'default', password: 'geheim' },
      });
    },
  );

  test('are called default unless they have another name', async () => {
    const options = ['--url', url, '--project', project, '--token', 'saved'];
    expect((await run(['configure', '--no-check', ...options])).status).toBe(0);
    expect(await profileOf('default')).toEqual({
      url,
      project,
      credentials: { kind: 'token', token: 'saved' },
    });
    const { status, err } = await run(['types', ...RANGE]);
    expect(status).toBe(1);
    expect(err).toContain('this service did not issue the token in X-Auth-Token');
  });

  test('are used with another project, by ID or name, without being named', async () => {
    const flags = ['--user', 'admin', '--password-stdin', '--no-check'];
    await run(['configure', '--url', url, '--project', 'elsewhere', ...flags], { stdin: PASSWORD });
    for (const given of [project, 'default'])
      for (const command of ['timeline', 'types', 'peak', 'hosts', 'sources'])
        expect(await run([command, '--project', given, '--output', 'csv'])).toMatchObject({
          status: 0,
          err: '',
        });
    const { status, out } = await run(['types', ...RANGE], { env: { WAFSTAT_PROJECT: 'default' } });
    expect(status).toBe(0);
    expect(out).toMatch(/^total +31$/m);
  });

  test('are not created if the prompts are cancelled', async () => {
    const { io, printed } = memoryIo();
    const terminal = Object.assign(new PassThrough(), { isTTY: true });
    const configured = runProgram(['configure', '--profile', 'left'], { ...io, stdin: terminal });
    terminal.write('\u0003');
    expect(await configured).toBe(1);
    expect(printed.err).toContain('wafstat: cancelled');
  });
});
