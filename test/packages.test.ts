/** The npm packages as users install them: what is in them, and whether they work against a running service. */
import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, readFile, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CATEGORIES } from './oracle.ts';
import { Sandbox } from './sandbox.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const compiler = join(root, 'node_modules/typescript/bin/tsc');
const SDKS = ['signer', 'client'] as const;

/** What a user of both packages writes. */
const PROGRAM = `
import { ATTACK_TYPES, type Client, createClient, OVERVIEW_KEYS } from '@wafstat/client';
import { signedFetch } from '@wafstat/signer';
import { scopeLine } from '@wafstat/signer/scoped';

const [url = '', projectId = '', password = '', access = '', secret = ''] = process.argv.slice(2);
const credentials = { user: 'admin', password, domain: 'default' };
const byPassword = createClient({ url, projectId, credentials, maxRetries: 1, timeoutMs: 30_000 });
const byKey = createClient({ url, projectId, fetch: signedFetch({ access, secret }) });

const to = Date.now();
const details = { source: '2001:db8::7', url: '/login?next=/', rule: '942100', country: 'de' };
const line = (host: string, attack?: string) =>
  JSON.stringify({ time: to - 1_000, host, attack, ...(attack && details) }) + '\\n';
async function* lines() {
  yield line('a.example');
  yield new TextEncoder().encode(line('b.example', 'sqli'));
}
const pushes = [
  await byPassword.ingest(lines, { source: 'stream', idempotencyKey: 'k' }),
  await byPassword.ingest(lines(), { source: 'stream', idempotencyKey: 'k' }),
  await byKey.ingest(line('c.example', 'xss'), { source: 'text' }),
  await byKey.ingest(lines(), { source: 'signed stream' }),
];

async function read(client: Client) {
  const range = { from: to - 60_000, to };
  const { requests } = await client.timeline(range);
  const { sqli, xss } = await client.attackTypes(range);
  const hosts: string[] = [];
  for await (const { hostname } of client.hosts({ limit: 2 })) hosts.push(hostname);
  const sources = (await client.sources()).items.map(({ name }) => name);
  return { requests: sumOf(requests), sqli, xss, hosts, sources, ...(await readMore(client, range)) };
}

const sumOf = (items: { num: number }[]) => items.reduce((sum, { num }) => sum + num, 0);

/** The attacks, counted by every call that counts them; and the other calls. */
async function readMore(client: Client, range: { from: number; to: number }) {
  const seriesOf = (key: string, all: { key: string; timeline: { num: number }[] }[]) =>
    sumOf(all.find((series) => series.key === key)?.timeline ?? []);
  const query = { ...range, timezone: '+08:00' };
  const totals = await client.overviewTotals(range);
  const { domain, attack_type, ip, url, geo } = await client.classification({ ...range, top: 1 });
  const attacks = [
    sumOf((await client.timeline(query)).attacks),
    (await client.attackCount(range)).attack_num,
    sumOf(totals.filter(({ key }) => key === 'ATTACK')),
    seriesOf('ATTACK', await client.overviewTimeline({ ...query, groupBy: 'DAY' })),
    sumOf((await client.attackTimeline(query)).flatMap(({ timeline }) => timeline)),
    sumOf((await client.attackDistribution(range)).items),
    sumOf((await client.attackActions(range)).items),
    sumOf((await client.attackedHosts(range)).items),
    sumOf((await client.topDomains(range)).items),
    (await client.attackSourceCount(range)).attacks,
    sumOf((await client.attackSources(range)).items),
    sumOf((await client.topIps({ ...range, attacks: ['sqli', 'xss'] })).items),
    sumOf((await client.topUrls(range)).items),
    sumOf((await client.topRules(range)).items),
    sumOf((await client.topCountries(range)).items),
  ];
  const [first] = (await client.hosts({ limit: 1 })).items;
  const names: string[][] = [];
  for (const pages of [client.compositeHosts({ page: 2, limit: 2 }), client.premiumHosts()]) {
    names.push((await pages).items.map(({ hostname }) => hostname));
  }
  return {
    attacks,
    keys: [totals.map(({ key }) => key), OVERVIEW_KEYS],
    categories: [(await client.attackTimeline(query)).map(({ key }) => key), ATTACK_TYPES],
    peak: await client.requestPeak(range),
    peakSeries: Math.max(
      ...(await client.qpsTimeline({ ...query, displayOption: 1 })).flatMap(({ timeline }) => timeline.map(({ num }) => num)),
    ),
    topHosts: (await client.attackedHosts({ ...range, top: 1 })).items,
    topDomain: domain,
    topType: attack_type,
    topKeys: [ip, url, geo].map(({ items }) => items[0]?.key),
    host: (await client.host(first?.id ?? '')).hostname,
    unknown: await client.host('nowhere').catch(({ status }) => status),
    names,
    threats: [(await client.threatMap()).threats, Object.keys((await client.threats()).locale)],
  };
}

const scope = scopeLine({ date: '19700101', region: '', service: '' });
console.log(JSON.stringify({ pushes, reads: [await read(byPassword), await read(byKey)], scope }));
`;

const sandbox = new Sandbox();
let project: string;
const packed: Record<string, string[]> = {};

/** Builds copies of the SDKs, so that files of earlier builds are not packed. */
beforeAll(async () => {
  const build = await realpath(sandbox.directory);
  await cp(join(root, 'tsconfig.base.json'), join(build, 'tsconfig.base.json'));
  for (const name of SDKS) {
    const filter = (path: string) => !/node_modules|dist$/.test(path.slice(root.length));
    await cp(join(root, 'packages', name), join(build, 'packages', name), { recursive: true, filter });
    await run(process.execPath, [compiler, '-b', `packages/${name}`], build);
  }
  project = join(build, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), '{ "private": true, "type": "module" }');
  const compilerOptions = {
    module: 'NodeNext',
    target: 'ES2023',
    lib: ['ES2023', 'DOM'],
    types: ['node'],
    typeRoots: [join(root, 'node_modules/@types')],
    strict: true,
  };
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
  const tarballs: string[] = [];
  for (const directory of [
    ...SDKS.map((name) => join(build, 'packages', name)),
    join(root, 'packages/server'),
  ]) {
    const [manifest] = await pack(directory);
    packed[manifest.name] = manifest.files.map(({ path }) => path).toSorted();
    if (manifest.name !== 'wafstat') tarballs.push(join(project, manifest.filename));
  }
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', ...tarballs], project);
});

afterAll(() => sandbox.clear());

describe('contents', () => {
  test.each(SDKS)('@wafstat/%s has its sources and builds, and nothing else', async (name) => {
    const all = await readdir(join(root, 'packages', name, 'src'));
    const modules = all.filter((file) => !file.endsWith('.test.ts')).map((file) => file.replace(/\.ts$/, ''));
    const expected = modules.flatMap((module) => [
      `src/${module}.ts`,
      ...['js', 'js.map', 'd.ts'].map((ending) => `dist/${module}.${ending}`),
    ]);
    expect(packed[`@wafstat/${name}`]).toEqual(
      ['LICENSE', 'README.md', 'package.json', ...expected].toSorted(),
    );
  });

  test('wafstat has the program, the console and nothing else', () => {
    const files = packed.wafstat ?? [];
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'package.json', 'bin/wafstat.js']));
    expect(files).toEqual(
      expect.arrayContaining([
        'dist/main.js',
        'dist/bundle/main.js',
        'dist/web/index.html',
        'dist/web/index.html.br',
      ]),
    );
    const program = /^dist\/(?!.*\.test\.)[\w/-]+\.js(\.compiled-\w+)?$/;
    const bundle = ['dist/bundle/LICENSES.txt', 'dist/bundle/package.json'];
    const webConsole = /^dist\/web\/[\w/-]+\.(html|js|css|svg)(\.br|\.gz)?$/;
    const others = files.filter((file) => !program.test(file) && !webConsole.test(file));
    const starter = ['bin/package.json', 'bin/wafstat.js'];
    expect(others).toEqual(['LICENSE', 'README.md', ...starter, ...bundle, 'package.json']);
  });

  test('the SDKs have no dependencies', async () => {
    const installed = await readdir(join(project, 'node_modules'));
    expect(installed.filter((name) => !name.startsWith('.'))).toEqual(['@wafstat']);
  });
});

describe('use', () => {
  test('a program type-checks, and reads and writes statistics', async () => {
    const { installation, server } = await sandbox.service();
    const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', 'admin');
    await writeFile(join(project, 'program.ts'), PROGRAM);
    await run(process.execPath, [compiler, '-p', '.'], project);
    const { project_id, password } = installation;
    const args = ['program.js', server.address, project_id, password, key.access, key.secret];
    const printed = JSON.parse(await run(process.execPath, args, project));
    const keys = ['ACCESS', 'CRAWLER', 'CC', 'PRECISE', 'WEB_ATTACK', 'ATTACK'];
    const counted = {
      attacks: Array(15).fill(3),
      keys: [keys, keys],
      categories: [CATEGORIES, CATEGORIES],
      peak: { qps: 5 },
      peakSeries: 5,
      topHosts: [{ host: 'b.example', num: 2 }],
      topDomain: { total: 2, items: [{ key: 'b.example', num: 2, web_tag: '' }] },
      topType: { total: 2, items: [{ key: 'sqli', num: 2 }] },
      topKeys: ['2001:db8::/64', '/login', 'DE'],
      host: 'a.example',
      unknown: 404,
      names: [['c.example'], ['a.example', 'b.example', 'c.example']],
      threats: [CATEGORIES, CATEGORIES],
      requests: 5,
      sqli: 2,
      xss: 1,
      hosts: ['a.example', 'b.example', 'c.example'],
      sources: ['signed stream', 'stream', 'text'],
    };
    expect(printed).toMatchObject({
      pushes: [
        { accepted: 2, duplicate: false },
        { accepted: 0, duplicate: true },
        { accepted: 1, duplicate: false },
        { accepted: 2, duplicate: false },
      ],
      reads: [counted, counted],
      scope: '19700101///sdk_request',
    });
  });

  test('the examples in the READMEs type-check', async () => {
    for (const name of SDKS) {
      const readme = await readFile(join(root, 'packages', name, 'README.md'), 'utf8');
      const examples = [...readme.matchAll(/```ts\n(.*?)```/gs)];
      expect(examples.length).toBeGreaterThan(0);
      for (const [at, [, example = '']] of examples.entries()) {
        await writeFile(join(project, `${name}-example-${at}.ts`), example);
      }
    }
    await run(process.execPath, [compiler, '-p', '.', '--noEmit'], project);
  });
});

interface Manifest {
  name: string;
  filename: string;
  files: { path: string }[];
}

async function pack(directory: string): Promise<[Manifest]> {
  return JSON.parse(await run('npm', ['pack', '--json', '--pack-destination', project], directory));
}

/** Without the variables of the npm that runs the tests, which would make npm install into the repository. */
async function run(command: string, args: string[], cwd: string): Promise<string> {
  const settings = Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith('npm_'));
  const env = Object.fromEntries(settings);
  const failed = (error: { message: string; stdout?: string }) => {
    throw new Error(`${error.message}\n${error.stdout ?? ''}`);
  };
  const { stdout } = await promisify(execFile)(command, args, { cwd, env }).catch(failed);
  return stdout;
}
