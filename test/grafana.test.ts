/**
 * The dashboards in deploy/grafana, without Grafana: variables are replaced as Grafana does, queries are sent as the data
 * sources send them, and panels must find the fields that they show.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, call, requestToken, tokenRequest } from './api.ts';
import { type KnownEvent, Oracle, type Query } from './oracle.ts';
import { Page } from './pages.ts';
import { eventually } from './process.ts';
import { type Installation, KEEP_ALL, ndjson, Sandbox } from './sandbox.ts';
import { freePort } from './web-server.ts';

const HOME = new URL('../deploy/grafana/', import.meta.url);

interface Column {
  selector: string;
  text: string;
  type: 'string' | 'number' | 'timestamp_epoch';
}

interface Target {
  refId: string;
  datasource: { type: string; uid: string };
  format: string;
  /** Infinity. */
  url: string;
  parser: string;
  root_selector: string;
  columns: Column[];
  /** Prometheus. */
  expr: string;
  legendFormat: string;
  instant: boolean;
}

interface Panel {
  id: number;
  type: string;
  title: string;
  description: string;
  datasource: { type: string; uid: string };
  gridPos: { x: number; y: number; w: number; h: number };
  targets: Target[];
  fieldConfig: {
    defaults: { unit?: string };
    overrides: { matcher: { id: string; options: string }; properties: { id: string; value: unknown }[] }[];
  };
  options: { xField?: string };
}

interface Variable {
  name: string;
  type: string;
  query: string | { infinityQuery: Target } | { query: string };
  datasource?: { type: string; uid: string };
  allValue?: string;
}

interface Dashboard {
  uid: string;
  title: string;
  schemaVersion: number;
  panels: Panel[];
  templating: { list: Variable[] };
}

const read = (name: string): Dashboard =>
  JSON.parse(readFileSync(new URL(`dashboards/${name}.json`, HOME), 'utf8'));
const FILES = readdirSync(new URL('dashboards/', HOME)).map((name) => name.replace(/\.json$/, ''));

/** Units of Grafana for counts, shares, rates and times. */
const UNITS = ['locale', 'percentunit', 'reqps', 'dateTimeFromNow', 'short', 's', 'bytes', 'cps', 'none'];

/** `$name`, `${name}` and `${name:format}`; a variable without a value is an error. */
function interpolate(text: string, values: Readonly<Record<string, string>>): string {
  return text.replaceAll(/\$(?:\{(\w+)(?::(\w+))?\}|(\w+))/g, (whole, braced, format, bare) => {
    const value = values[braced ?? bare];
    if (value === undefined) throw new Error(`unknown variable in ${whole}: ${text}`);
    return format === 'percentencode' ? encodeURIComponent(value) : value;
  });
}

describe.each(FILES)('%s', (name) => {
  const { panels, templating, ...dashboard } = read(name);

  test('names, IDs and positions are unique', () => {
    expect(dashboard).toMatchObject({
      uid: name,
      schemaVersion: 39,
      title: expect.stringMatching(/^wafstat: /),
    });
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
    const cells = panels.flatMap(({ title, gridPos: { x, y, w, h } }) => {
      expect({ title, fits: x >= 0 && y >= 0 && w > 0 && h > 0 && x + w <= 24 }).toEqual({
        title,
        fits: true,
      });
      return Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`);
    });
    expect(new Set(cells).size).toBe(cells.length);
  });

  test('every panel and query uses the data source of a variable', () => {
    const sources = templating.list.filter(({ type }) => type === 'datasource');
    const allowed = sources.map(({ name: source, query }) => ({ type: query, uid: `\${${source}}` }));
    expect(allowed.length).toBeGreaterThan(0);
    for (const { title, datasource, targets, type } of panels) {
      if (type === 'row') continue;
      expect(targets.length, title).toBeGreaterThan(0);
      for (const each of [datasource, ...targets.map((target) => target.datasource)]) {
        expect(allowed, title).toContainEqual(each);
      }
      expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length);
    }
    for (const { datasource } of templating.list) if (datasource) expect(allowed).toContainEqual(datasource);
  });

  test('every panel has a description, and units that Grafana knows', () => {
    for (const { title, description, fieldConfig } of panels) {
      expect(description, title).toMatch(/\.$/);
      const units = [
        fieldConfig.defaults.unit,
        ...fieldConfig.overrides.flatMap(({ properties }) =>
          properties.filter(({ id }) => id === 'unit').map(({ value }) => value),
        ),
      ].filter((unit) => unit !== undefined);
      expect(UNITS, title).toEqual(expect.arrayContaining(units));
    }
  });
});

test('provisioning names the plugins of the dashboards, and takes secrets from the environment', () => {
  const sources = readFileSync(new URL('provisioning/datasources/wafstat.yaml', HOME), 'utf8');
  const types = [...sources.matchAll(/^ +type: (\S+)$/gm)].map(([, type]) => type);
  const used = FILES.flatMap((name) => read(name).panels.map(({ datasource }) => datasource.type));
  expect(types).toEqual(expect.arrayContaining([...new Set(used)]));
  expect(sources).toMatch(/basicAuthPassword: \$\{WAFSTAT_SK\}/);
  const dashboards = readFileSync(new URL('provisioning/dashboards/wafstat.yaml', HOME), 'utf8');
  // Every variable is explained.
  const page = readFileSync(new URL('../../docs/grafana.md', HOME), 'utf8');
  for (const [, variable = ''] of `${sources}${dashboards}`.matchAll(/\$\{(\w+)\}/g))
    expect(page).toContain(`${variable}=`);
});

type Row = Record<string, string | number | null>;

/** The rows of a response as the parser `jq-backend` makes them: a single array, or all results. */
function rows(document: string, { root_selector, columns, parser }: Target): Row[] {
  expect(parser).toBe('jq-backend');
  // Grafana would replace these.
  expect(root_selector).not.toMatch(/\$(datasource|host|timezone|__\w+|\{)|\[\[/);
  const { status, stdout, stderr } = spawnSync('jq', ['-c', root_selector], { input: document });
  expect({ status, stderr: stderr.toString() }).toEqual({ status: 0, stderr: '' });
  const results: unknown[] = stdout
    .toString()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  const [only] = results;
  const records = (results.length === 1 && Array.isArray(only) ? only : results) as Row[];
  return records.map((record) => {
    for (const { selector } of columns) expect(Object.keys(record)).toContain(selector);
    return Object.fromEntries(columns.map(({ selector, text }) => [text, record[selector] ?? null]));
  });
}

const hasJq = spawnSync('jq', ['--version']).status === 0;
const HOUR_MS = 3_600_000;
const FROM = Date.UTC(2026, 5, 1, 6);
const TO = FROM + 26 * HOUR_MS;

const attack = (i: number): Partial<KnownEvent> => ({
  attack: (['sqli', 'xss', 'robot', 'custom'] as const)[i % 4] ?? 'cc',
  blocked: i % 3 !== 0,
  source: `192.0.2.${i % 5}`,
  url: `/path-${i % 3}`,
  rule: String(942_100 + (i % 2)),
  country: 'NL',
});
const EVENTS: readonly KnownEvent[] = Array.from({ length: 60 }, (_, i) => ({
  time: FROM + i * 26 * 60_000 + i,
  hostname: i % 7 === 0 ? null : (['shop.example.com', 'api.example.com'][i % 2] ?? null),
  request: true,
  count: 1,
  attack: null,
  ...(i % 2 === 0 ? attack(i / 2) : {}),
}));

describe.skipIf(!hasJq && process.env.CI !== 'true')('history (needs: apt-get install jq)', () => {
  const { panels, templating } = read('wafstat-history');
  const oracle = new Oracle(EVENTS);
  const sandbox = new Sandbox();
  let address: string;
  let base: string;
  let credentials: string[];
  let authorization: string;
  let hostIds: ReadonlyMap<string, string>;

  beforeAll(async () => {
    const { installation, server, api } = await sandbox.service(...KEEP_ALL, '--details-retention', '3653d');
    const events = EVENTS.map(({ hostname, attack: category, ...rest }) => ({
      ...rest,
      ...(hostname === null ? {} : { host: hostname }),
      ...(category === null ? {} : { attack: category }),
    }));
    await sandbox.ingest(installation.project_id, events, ...KEEP_ALL);
    await sandbox.runJson('user', 'add', 'grafana', '--role', 'reader', '--project', installation.project_id);
    const { access, secret } = await sandbox.runJson<{ access: string; secret: string }>(
      ...['key', 'add', '--user', 'grafana'],
    );
    credentials = [access, secret];
    authorization = `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}`;
    // The URL of the data source.
    base = `/v1/${installation.project_id}`;
    address = server.address;
    hostIds = await api.hostIds();
  });
  afterAll(() => sandbox.clear());

  async function frame(target: Target, host: string, timezone = '+00:00'): Promise<Row[]> {
    const values = { __from: String(FROM), __to: String(TO), host, timezone };
    const path = base + interpolate(target.url, values);
    const { status, text } = await call(address, path, { headers: { Authorization: authorization } });
    expect({ path, status, text: status === 200 ? '' : text }).toEqual({ path, status: 200, text: '' });
    return rows(text, target);
  }

  const all = templating.list.find(({ name }) => name === 'host')?.allValue ?? '';
  const query = (hostnames?: ReadonlySet<string>): Query => ({
    from: FROM,
    to: TO,
    offsetMinutes: 0,
    hostnames,
  });

  test('the variable `host` lists the hosts, with the filter for each as its value', async () => {
    const variable = templating.list.find(({ name }) => name === 'host')?.query;
    if (typeof variable !== 'object' || !('infinityQuery' in variable)) throw new Error('not a query');
    const found = await frame(variable.infinityQuery, '');
    expect(found).toEqual(
      ['api.example.com', 'shop.example.com'].map((name) => ({
        __text: name,
        __value: `hosts=${hostIds.get(name)}`,
      })),
    );
  });

  test.each(panels)('$title: the fields fit the panel', async (panel) => {
    for (const target of panel.targets) {
      const found = await frame(target, all);
      expect(found.length).toBeGreaterThan(0);
      for (const { text, type } of target.columns) {
        const wanted = type === 'string' ? 'string' : 'number';
        for (const row of found) expect([text, typeof row[text]]).toEqual([text, wanted]);
      }
      const times = target.columns.filter(({ type }) => type === 'timestamp_epoch').map(({ text }) => text);
      const numbers = target.columns.filter(({ type }) => type === 'number').map(({ text }) => text);
      expect(numbers.length).toBeGreaterThan(0);
      if (panel.type === 'timeseries') {
        expect([target.format, times]).toEqual(['timeseries', ['Time']]);
        const points = found.map(({ Time }) => Number(Time));
        expect(points).toEqual(points.toSorted((a, b) => a - b));
        expect([Math.min(...points) > FROM, Math.max(...points)]).toEqual([true, TO]);
      } else expect(target.format).toBe('table');
      if (panel.type === 'stat') expect([found.length, target.columns.length]).toEqual([1, 1]);
      if (panel.options.xField !== undefined)
        expect(Object.keys(found[0] ?? {})).toContain(panel.options.xField);
      if (panel.fieldConfig.defaults.unit === 'percentunit') {
        for (const row of found) for (const name of numbers) expect(Number(row[name])).toBeLessThanOrEqual(1);
      }
    }
    const fields = panel.targets.flatMap(({ columns }) => columns.map(({ text }) => text));
    for (const { matcher } of panel.fieldConfig.overrides) {
      expect(matcher.id).toBe('byName');
      expect(fields).toContain(matcher.options);
    }
  });

  const panelOf = (title: string): Panel => {
    const panel = panels.find((each) => each.title === title);
    if (panel === undefined) throw new Error(`no panel ${title}`);
    return panel;
  };
  const firstTarget = (title: string): Target => {
    const [target] = panelOf(title).targets;
    if (target === undefined) throw new Error(`no query in ${title}`);
    return target;
  };
  const totals = (found: readonly Row[]) =>
    Object.fromEntries(
      Object.keys(found[0] ?? {})
        .filter((name) => name !== 'Time')
        .map((name) => [name, found.reduce((total, row) => total + Number(row[name]), 0)]),
    );

  test.each([
    ['the project', undefined],
    ['one host', new Set(['shop.example.com'])],
  ])('the numbers of %s are exact', async (_, hostnames) => {
    const filter = hostnames ? `hosts=${hostIds.get('shop.example.com')}` : all;
    const { requests, attacks } = oracle.timeline(query(hostnames));
    const sum = (points: readonly { num: number }[]) => points.reduce((total, { num }) => total + num, 0);
    const expected = { Requests: sum(requests), Attacks: sum(attacks) };
    expect(expected.Attacks).toBeGreaterThan(0);
    expect(totals(await frame(firstTarget('Requests and attacks'), filter))).toEqual(expected);
    expect(await frame(firstTarget('Requests'), filter)).toEqual([{ Requests: expected.Requests }]);
    expect(await frame(firstTarget('Attacks'), filter)).toEqual([{ Attacks: expected.Attacks }]);
    expect(await frame(firstTarget('Attack rate'), filter)).toEqual([
      { 'Attack rate': expected.Attacks / expected.Requests },
    ]);

    const target = firstTarget('Attacks by category');
    const distribution = oracle.distribution(query(hostnames));
    const labels = new Map(target.columns.map(({ selector, text }) => [selector, text]));
    const byCategory = Object.fromEntries(
      Object.entries(distribution).map(([name, num]) => [labels.get(name), num]),
    );
    expect(totals(await frame(target, filter))).toEqual(byCategory);
    const bars = await frame(firstTarget('Categories'), filter);
    expect(Object.fromEntries(bars.map(({ Category, Attacks }) => [Category, Attacks]))).toEqual(
      Object.fromEntries(Object.entries(byCategory).filter(([, num]) => Number(num) > 0)),
    );
  });

  test('the example of the documentation prints what it shows', () => {
    const page = new Page('docs/grafana.md');
    const [example] = page.ofKind('run');
    const [output] = page.ofKind('output');
    expect(page.fences.map(({ kind }) => kind)).toEqual(['not-run', 'not-run', 'run', 'output']);
    expect(page.fenceLines).toBe(2 * page.fences.length);
    const [WAFSTAT_AK = '', WAFSTAT_SK = ''] = credentials;
    const [FROM_MS, TO_MS] = [String(FROM), String(TO)];
    const project = base.replace('/v1/', '');
    const env = {
      WAFSTAT_AK,
      WAFSTAT_SK,
      WAFSTAT_URL: address,
      WAFSTAT_PROJECT: project,
      FROM: FROM_MS,
      TO: TO_MS,
    };
    const { stdout, status } = spawnSync('/bin/sh', ['-eu'], {
      input: example?.code ?? '',
      env: { PATH: process.env.PATH, ...env },
    });
    expect({ status, printed: stdout.toString() }).toEqual({ status: 0, printed: output?.code });
  });

  test('the categories have the names that the API gives them', async () => {
    const { text } = await call(address, `${base}/waf/tag/threat/map`, {
      headers: { Authorization: authorization },
    });
    const { columns } = firstTarget('Attacks by category');
    const labels = Object.fromEntries(columns.slice(1).map(({ selector, text: label }) => [selector, label]));
    expect(labels).toEqual(JSON.parse(text).locale);
  });

  test('days follow the variable `timezone`', async () => {
    const days = await frame(firstTarget('Attacks by day'), all, '+08:00');
    expect(days.map(({ Time }) => Time)).toEqual([Date.UTC(2026, 5, 1, 16), TO].sort());
  });

  test('a range without events has rows and zeros, not errors', async () => {
    const values = {
      __from: String(TO + HOUR_MS),
      __to: String(TO + 2 * HOUR_MS),
      host: all,
      timezone: '+00:00',
    };
    for (const { title, targets } of panels.filter(({ type }) => type !== 'table')) {
      for (const target of targets) {
        const { text } = await call(address, base + interpolate(target.url, values), {
          headers: { Authorization: authorization },
        });
        const found = rows(text, target);
        if (title !== 'Categories') expect(found.length, title).toBeGreaterThan(0);
        for (const row of found) for (const value of Object.values(totals([row]))) expect(value).toBe(0);
      }
    }
  });
});

interface Series {
  metric: Record<string, string>;
  /** The result of a range query. */
  values?: [time: number, value: string][];
  /** The result of an instant query. */
  value?: [time: number, value: string];
}

const PROMETHEUS = '/usr/bin/prometheus';

describe.skipIf(!existsSync(PROMETHEUS) && process.env.CI !== 'true')(
  'live (needs: apt-get install prometheus)',
  () => {
    const { panels, templating } = read('wafstat-live');
    const sandbox = new Sandbox();
    let prometheus: ChildProcess;
    let address: string;
    let api: Api;
    let installation: Installation;
    let traffic: NodeJS.Timeout;

    beforeAll(async () => {
      const [port, metrics] = [await freePort(), await freePort()];
      const service = await sandbox.service('--metrics-listen', `127.0.0.1:${metrics}`);
      ({ installation, api } = service);
      const config = {
        global: { scrape_interval: '500ms', scrape_timeout: '500ms' },
        scrape_configs: [{ job_name: 'wafstat', static_configs: [{ targets: [`127.0.0.1:${metrics}`] }] }],
      };
      // JSON is YAML.
      const file = sandbox.write('prometheus.yml', JSON.stringify(config));
      const options = [`--storage.tsdb.path=${sandbox.path('tsdb')}`, '--log.level=error'];
      address = `127.0.0.1:${port}`;
      prometheus = spawn(
        PROMETHEUS,
        [`--config.file=${file}`, `--web.listen-address=${address}`, ...options],
        { stdio: 'ignore' },
      );
      // Rates need something that changes between scrapes.
      traffic = setInterval(() => sendTraffic().catch(() => {}), 250);
    });

    afterAll(async () => {
      clearInterval(traffic);
      const ended = new Promise((resolve) => prometheus.once('close', resolve));
      prometheus.kill('SIGTERM');
      await ended;
      await sandbox.clear();
    });

    async function sendTraffic(): Promise<void> {
      const time = Date.now();
      const body = `${ndjson([{ time, host: 'shop.example.com', attack: 'sqli', blocked: true }, { time }])}dropped\n`;
      const headers = { 'X-Auth-Token': api.token };
      await call(api.address, `/ingest/v1/${api.project}?source=edge`, { method: 'POST', headers, body });
      await api.get(`waf/event/timeline?from=${time - 60_000}&to=${time}`);
      await requestToken(api.address, tokenRequest({ ...installation, user: 'nobody' }));
    }

    async function get<T>(path: string): Promise<T> {
      const { status, text } = await call(`http://${address}`, `/api/v1/${path}`);
      if (status !== 200) throw new Error(`${path} returned ${status}: ${text}`);
      return JSON.parse(text).data;
    }

    const VALUES = { __rate_interval: '5s', __range: '1m' };

    test('the variables list the services and projects', async () => {
      const found = await eventually(async () => {
        const lists: Record<string, string[]> = {};
        for (const { name, query } of templating.list.filter(({ type }) => type === 'query')) {
          if (typeof query !== 'object' || !('query' in query)) throw new Error('not a query');
          const [, metric = '', label = ''] = /^label_values\((\w+), (\w+)\)$/.exec(query.query) ?? [];
          lists[name] = await get<string[]>(`label/${label}/values?match[]=${metric}`).catch(() => []);
        }
        return Object.values(lists).every(({ length }) => length > 0) ? lists : undefined;
      }, 'label values');
      expect(found).toEqual({
        instance: [expect.stringMatching(/^127\.0\.0\.1:\d+$/)],
        project: ['default'],
      });
    });

    test.each(panels)('$title: every query has series with the labels of its legend', async (panel) => {
      const unit = panel.fieldConfig.defaults.unit;
      for (const { expr, legendFormat, instant } of panel.targets) {
        // Grafana joins the values of `All` to a regular expression.
        const query = encodeURIComponent(
          interpolate(expr, { ...VALUES, instance: '(127.0.0.1:.*)', project: '(default)' }),
        );
        const series = await eventually(async () => {
          const now = Date.now() / 1_000;
          const path = instant
            ? `query?query=${query}`
            : `query_range?query=${query}&start=${now - 30}&end=${now}&step=1`;
          const { result } = await get<{ result: Series[] }>(path);
          const hasNumber = result.some(({ value, values = value ? [value] : [] }) =>
            values.some(([, number]) => Number.isFinite(Number(number))),
          );
          return hasNumber ? result : undefined;
        }, `data of ${expr}`);
        if (panel.type === 'stat') expect([series.length, instant]).toEqual([1, true]);
        else expect(instant).toBe(false);
        for (const { metric, value, values = value ? [value] : [] } of series) {
          for (const [, label = ''] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
            expect(Object.keys(metric)).toContain(label);
          }
          const numbers = values.map(([, number]) => Number(number)).filter(Number.isFinite);
          if (unit === 'percentunit') for (const number of numbers) expect(number).toBeLessThanOrEqual(1);
          for (const number of numbers) expect(number).toBeGreaterThanOrEqual(unit === 's' ? -1 : 0);
        }
        // Series that the legend cannot tell apart would look like one.
        const names = series.map(({ metric }) =>
          legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? ''),
        );
        expect(new Set(names).size).toBe(names.length);
      }
    });

    test('every metric of the dashboard is documented', () => {
      const page = readFileSync(new URL('../docs/metrics.md', import.meta.url), 'utf8');
      const names = panels.flatMap(({ targets }) =>
        targets.flatMap(({ expr }) =>
          [...expr.matchAll(/\b(?:wafstat|process|nodejs)_\w+/g)].map(([name]) => name),
        ),
      );
      const documented = names.map((name) => name.replace(/_(bucket|count)$/, ''));
      expect(documented.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
    });
  },
);
