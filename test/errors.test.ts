/** Every error of the error table that a client can cause. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Api, call, type HttpResponse, login } from './api.ts';
import { CALLS } from './oracle.ts';
import { type Installation, Sandbox } from './sandbox.ts';

const sandbox = new Sandbox();
let installation: Installation;
let api: Api;

beforeAll(async () => {
  ({ installation, api } = await sandbox.service());
});
afterAll(() => sandbox.clear());

/** The response has this status and code, and its message contains these words. */
function expectError(response: HttpResponse, status: number, error_code: string, ...words: string[]): void {
  expect(JSON.parse(response.text)).toEqual({ error_code, error_msg: expect.any(String) });
  expect(response.status).toBe(status);
  expect(response.headers['content-type']).toMatch(/^application\/json/);
  expect(response.headers['x-request-id']).toBeTruthy();
  for (const word of words) expect(JSON.parse(response.text).error_msg).toContain(word);
}

const QUERIES = [...new Set(Object.keys(CALLS).map((call) => `waf/${call.split('?')[0]}`))];
const LISTS = [
  'connections',
  'waf/instance',
  'waf/instance/abc',
  'composite-waf/host',
  'premium-waf/host',
  'waf/tag/threat/map',
  'waf/map/threat',
];
/** Paths of the API family for which there is no data. */
const NOT_KEPT = ['waf/async-job/1', 'waf/security-reports/1'];
const PATHS = [...QUERIES.map((path) => `${path}?from=0&to=1`), ...LISTS, ...NOT_KEPT];
const TEN_YEARS_MS = Date.UTC(2026, 0, 1) - Date.UTC(2016, 0, 1);
const DAY_MS = 86_400_000;

describe.each(QUERIES)('400 WAF.1025 for the time in %s', (path) => {
  test.each([
    ['no from', 'to=1', ['from', 'required']],
    ['no to', 'from=1', ['to', 'required']],
    ['neither', '', ['from']],
    ['an empty from', 'from=&to=1', ['from', 'integer']],
    ['a word', 'from=now&to=1', ['from', 'now', 'integer']],
    ['a fraction', 'from=1.5&to=2', ['from', '1.5', 'integer']],
    ['an exponent', 'from=0&to=1e12', ['to', '1e12', 'integer']],
    ['a hexadecimal number', 'from=0x10&to=20', ['from', '0x10', 'integer']],
    ['a space before it', 'from=%201&to=2', ['from', 'integer']],
    ['a date', 'from=2025-01-01&to=2', ['from', 'integer']],
    ['digits of another script', 'from=%D9%A1&to=2', ['from', 'integer']],
    ['a negative from', 'from=-1&to=2', ['from', 'must be from 0 to']],
    ['a negative to', 'from=0&to=-2', ['to', 'must be from 0 to']],
    ['more than fits', 'from=0&to=9007199254740993', ['to', 'must be from 0 to 9007199254740991']],
    ['far more than fits', `from=0&to=${'9'.repeat(400)}`, ['to', 'must be from 0 to 9007199254740991']],
    ['reversed', 'from=2&to=1', ['from', 'to', 'after']],
    ['more than ten years', `from=0&to=${TEN_YEARS_MS + DAY_MS + 1}`, ['from', 'to', 'ten years']],
    ['from twice', 'from=1&from=1&to=2', ['from', '2 times']],
    ['to twice', 'from=1&to=2&to=3', ['to', '2 times']],
    ['an unknown recent', 'recent=tomorrow', ['recent', 'tomorrow', '3days']],
    ['an empty recent', 'recent=', ['recent']],
    ['recent in capitals', 'recent=TODAY', ['recent', 'TODAY']],
    ['a name every object has', 'recent=constructor', ['recent', 'constructor']],
    ['recent twice', 'recent=today&recent=today', ['recent', '2 times']],
    ['a wrong recent beside a right range', 'from=1&to=2&recent=ever', ['recent', 'ever']],
  ])('%s', async (_, query, words) => {
    expectError(await api.get(`${path}?${query}`), 400, 'WAF.1025', ...words);
  });
});

describe('400 WAF.1001 for a bad time zone', () => {
  test.each([
    'CEST!',
    'Z',
    '08:00',
    '%2B8:00',
    '%2B08',
    '%2B0800',
    '%2B08:0',
    '%2B08:000',
    '%2B08:60',
    '%2B14:01',
    '-12:01',
    '%2B99:00',
    '%2B%2B08:00',
    '%2B08:00%20',
    'Europe/Berlinn',
    '',
  ])('timezone=%s', async (timezone) => {
    const response = await api.get(`waf/event/timeline?from=0&to=1&timezone=${timezone}`);
    expectError(response, 400, 'WAF.1001', 'timezone', decodeURIComponent(timezone));
  });

  test('given twice', async () => {
    const query = 'from=0&to=1&timezone=%2B08:00&timezone=%2B08:00';
    expectError(await api.get(`waf/event/timeline?${query}`), 400, 'WAF.1001', 'timezone', '2 times');
  });

  test('with recent in the distribution', async () => {
    const response = await api.get('waf/event/attack/type?recent=today&timezone=Nowhere');
    expectError(response, 400, 'WAF.1001', 'timezone', 'Nowhere');
  });
});

describe('400 WAF.1001 for another malformed request', () => {
  test.each(['offset=-1', 'offset=x', 'offset=1.5', 'limit=0', 'limit=many', 'limit=', 'limit=1&limit=2'])(
    'a list of hosts with %s',
    async (query) => {
      expectError(await api.get(`waf/instance?${query}`), 400, 'WAF.1001', query.split('=')[0] ?? '');
    },
  );

  test('a path that cannot be decoded', async () => {
    expectError(await call(api.address, '/v1/%E0%A4%A/connections'), 400, 'WAF.1001');
  });
});

describe('400 WAF.1003 for a malformed ID', () => {
  const BAD = ['', 'a%20b', 'a.b', 'a/b', 'x'.repeat(65), '%C3%A9', '%00', "'%20OR%201=1", '../x'];

  test.each(BAD.flatMap((id) => QUERIES.map((path) => [path, id])))('%s?hosts=%s', async (path, id) => {
    expectError(await api.get(`${path}?from=0&to=1&hosts=${id}`), 400, 'WAF.1003', 'hosts');
  });

  test('one bad ID among good ones, repeated or after a comma', async () => {
    for (const hosts of ['hosts=a&hosts=b.c', 'hosts=a,b.c', 'hosts=a,', 'hosts=,a', 'hosts=a&hosts=']) {
      expectError(await api.get(`waf/event/timeline?from=0&to=1&${hosts}`), 400, 'WAF.1003', 'hosts');
    }
  });

  test.each(['a.b', 'x'.repeat(65), 'a%20b', '%C3%A9', 'a%2Fb'])('the project %s', async (project) => {
    const response = await new Api(api.address, project, api.token).get('waf/event/timeline?from=0&to=1');
    expectError(response, 400, 'WAF.1003', 'project');
  });

  test('long values are quoted in part', async () => {
    const { text } = await api.get(`waf/event/timeline?from=0&to=1&hosts=${'x'.repeat(10_000)}`);
    expect(text.length).toBeLessThan(400);
  });
});

describe('401 WAF.9001', () => {
  const withToken = (token: string, path = 'connections') =>
    new Api(api.address, api.project, token).get(path);

  test.each(PATHS)('no credentials for %s', async (path) => {
    expectError(await call(api.address, `/v1/${api.project}/${path}`), 401, 'WAF.9001', 'X-Auth-Token');
  });

  test.each(['x', '', '.', 'a.b', 'null', 'x'.repeat(20_000), 'eyJhbGciOiJub25lIn0.e30.'])(
    'a malformed token: %.20s',
    async (token) => {
      expectError(await withToken(token), 401, 'WAF.9001', 'X-Auth-Token');
    },
  );

  test('a token with any one character changed', async () => {
    for (let at = 0; at < api.token.length; at += 7) {
      const changed = api.token[at] === 'A' ? 'B' : 'A';
      expectError(
        await withToken(`${api.token.slice(0, at)}${changed}${api.token.slice(at + 1)}`),
        401,
        'WAF.9001',
      );
    }
    const last = api.token.length - 1;
    for (const token of [
      api.token.slice(0, last),
      `${api.token}A`,
      `${api.token}.`,
      `${api.token}, ${api.token}`,
    ]) {
      expectError(await withToken(token), 401, 'WAF.9001');
    }
  });

  test('a token of another installation', async () => {
    const elsewhere = new Sandbox();
    try {
      const { api: stranger } = await elsewhere.service();
      expectError(await withToken(stranger.token), 401, 'WAF.9001', 'X-Auth-Token');
    } finally {
      await elsewhere.clear();
    }
  });

  test('takes precedence over errors of parameters', async () => {
    expectError(await withToken('x', 'waf/event/timeline?from=x'), 401, 'WAF.9001');
    expectError(await call(api.address, '/v1/a.b/connections'), 401, 'WAF.9001');
  });
});

describe('403 WAF.9002', () => {
  test('a token for another project, for every call', async () => {
    const stranger = new Api(api.address, 'f'.repeat(32), api.token);
    for (const path of PATHS) expectError(await stranger.get(path), 403, 'WAF.9002', 'project');
  });

  test('a user without the role reader, for every call', async () => {
    const added = ['user', 'add', 'shipper', '--project', api.project, '--role', 'ingest'];
    const { password } = await sandbox.runJson<{ password: string }>(...added);
    const shipper = await login(api.address, { ...installation, user: 'shipper', password });
    for (const path of PATHS) expectError(await shipper.get(path), 403, 'WAF.9002', "missing role 'reader'");
  });

  test('a trace for a user without the role admin', async () => {
    const added = ['user', 'add', 'viewer', '--project', api.project, '--role', 'reader'];
    const { password } = await sandbox.runJson<{ password: string }>(...added);
    const viewer = await login(api.address, { ...installation, user: 'viewer', password });
    const path = 'waf/event/attack/num?from=0&to=1';
    expect((await viewer.get(path)).status).toBe(200);
    expectError(await viewer.get(`${path}&trace=1`), 403, 'WAF.9002', "trace needs the role 'admin'");
    const traced = await api.get(`${path}&trace=1`);
    expect([traced.status, traced.headers['server-timing']]).toEqual([200, expect.stringMatching(/^total;/)]);
  });

  test('a token for another project, existing or not', async () => {
    const { id } = await sandbox.runJson<{ id: string }>('project', 'add', 'other');
    const [existing, unknown] = await Promise.all(
      [id, 'f'.repeat(32)].map((project) => new Api(api.address, project, api.token).get('connections')),
    );
    if (existing === undefined || unknown === undefined) throw new Error('two calls have two responses');
    expectError(existing, 403, 'WAF.9002', 'project');
    expect(unknown.text).toBe(existing.text);
    const other = await login(api.address, { ...installation, project_id: id });
    expect((await other.get('connections')).status).toBe(200);
    expectError(await new Api(api.address, api.project, other.token).get('connections'), 403, 'WAF.9002');
  });
});

describe('404 WAF.4000', () => {
  test.each(['/nothing', '/v1', '/v1/p', '/v1/p/waf', '/v1/p/waf/event/timeline/x', '/v2/p/connections'])(
    '%s',
    async (path) => {
      expectError(await call(api.address, path), 404, 'WAF.4000', path);
    },
  );

  test('with a token too', async () => {
    expectError(await api.get('waf/nothing'), 404, 'WAF.4000', 'waf/nothing');
  });

  test.each(NOT_KEPT)('%s, with the reason', async (path) => {
    expectError(await api.get(path), 404, 'WAF.4000', path, 'wafstat does not keep');
  });

  test.each(['policy', 'policy/a/cc/b', 'rule/cc', 'certificate/a', 'valuelist', 'ip-groups', 'config/lts'])(
    'waf/%s, which configures a WAF, with every method',
    async (path) => {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
        const reason = 'wafstat does not keep the configuration of a WAF';
        expectError(await api.get(`waf/${path}`, { method }), 404, 'WAF.4000', `waf/${path}: ${reason}`);
      }
    },
  );

  test('a path that only begins like the configuration of a WAF, without that reason', async () => {
    const { text } = await api.get('waf/policyx');
    expect(JSON.parse(text).error_msg).toBe(`there is no path /v1/${api.project}/waf/policyx`);
  });

  test('a host that the project does not have', async () => {
    expectError(await api.get('waf/instance/abc'), 404, 'WAF.4000', 'abc');
  });
});

describe('405 WAF.4001', () => {
  test.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND'])(
    '%s on a query, with the allowed methods',
    async (method) => {
      const response = await api.get('waf/event/timeline?from=0&to=1', { method });
      expectError(response, 405, 'WAF.4001', method);
      expect(response.headers.allow?.split(', ')).toContain('GET');
    },
  );

  test.each(['/healthz', '/readyz', '/openapi.json', '/'])('POST on %s', async (path) => {
    const response = await call(api.address, path, { method: 'POST' });
    expectError(response, 405, 'WAF.4001', 'POST');
    expect(response.headers.allow).toContain('GET');
  });
});

describe('413 WAF.7001', () => {
  const send = (bytes: number, headers: Record<string, string> = {}) =>
    api.get('connections', { method: 'GET', body: 'x'.repeat(bytes), headers });

  test('a body over the limit, but not one of exactly that size', async () => {
    expectError(await send(65_537), 413, 'WAF.7001', 'request body exceeds 64 KiB');
    expect((await send(65_536)).status).toBe(200);
  });

  test('a chunked body over the limit', async () => {
    expectError(await send(65_537, { 'Transfer-Encoding': 'chunked' }), 413, 'WAF.7001', 'body');
    expect((await send(65_536, { 'Transfer-Encoding': 'chunked' })).status).toBe(200);
  });

  test('a body of any content type over the limit', async () => {
    expectError(await send(65_537, { 'Content-Type': 'image/png' }), 413, 'WAF.7001', 'body');
  });
});

describe('429 WAF.3004', () => {
  test('more requests per second than allowed, until Retry-After has passed', async () => {
    const limited = new Sandbox();
    try {
      const { api: caller } = await limited.service('--rate-limit', '3');
      const started = performance.now();
      const responses = await Promise.all(Array.from({ length: 60 }, () => caller.get('connections')));
      const seconds = (performance.now() - started) / 1_000;
      const refused = responses.filter(({ status }) => status !== 200);
      const served = responses.length - refused.length;
      expect(served).toBeGreaterThanOrEqual(3);
      expect(served).toBeLessThanOrEqual(6 + 3 * seconds);
      for (const response of refused) {
        expectError(response, 429, 'WAF.3004', '3 requests per second');
        expect(response.headers['retry-after']).toMatch(/^[1-9]\d*$/);
      }
      await sleep(1_000 * Number(refused[0]?.headers['retry-after']));
      expect((await caller.get('connections')).status).toBe(200);
      expect((await call(caller.address, '/healthz')).status).toBe(200);
    } finally {
      await limited.clear();
    }
  });
});
