/**
 * The dashboards in deploy/grafana, without Grafana: variables are replaced as Grafana does, queries are sent as the data
 * sources send them, and panels must find the fields that they show.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { call } from './api.ts';
import { type KnownEvent, Oracle, type Query } from './oracle.ts';
import { KEEP_ALL, Sandbox } from './sandbox.ts';

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
  query: string | { infinityQuery: Target };
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
  return text.replaceAll(/\$(?:\{(\w+)(?::(\w+))?\}|(__\w+))/g, (whole, braced, format, bare) => {
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
  let base: string;
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
    authorization = `Basic ${Buffer.from(`${access}:${secret}`).toString('base64')}`;
    // The URL of the data source.
    base = `/v1/${installation.project_id}`;
    address = server.address;
    hostIds = await api.hostIds();
  });
  afterAll(() => sandbox.clear());
  let address: string;

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
    if (typeof variable !== 'object') throw new Error('not a query');
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
