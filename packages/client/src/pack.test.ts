/** Installs what would be published, this package and the signer that its README plugs in, and uses it. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';

const packages = fileURLToPath(new URL('../..', import.meta.url));
const compiler = fileURLToPath(new URL('../../../node_modules/typescript/bin/tsc', import.meta.url));
const npmEnvironment = Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith('npm_'));

const PROGRAM = `
import { createClient, type OutgoingRequest } from '@wafstat/client';
import { sign } from '@wafstat/signer';
import { scopeLine } from '@wafstat/signer/scoped';

const client = createClient({
  baseUrl: 'https://waf.example.com',
  projectId: 'p',
  authorize: (request: OutgoingRequest) => sign(request, { access: 'a', secret: 's' }, { now: () => 0 }),
  fetch: async (_url, init) => {
    const signed = new Headers(init?.headers).get('Authorization');
    return Response.json({ requests: [], attacks: [{ time: 1, num: signed?.length ?? 0 }] });
  },
});
const { attacks } = await client.timeline({ recent: 'today' });
console.log(JSON.stringify({ attacks, scope: scopeLine({ date: '19700101', region: '', service: '' }) }));
`;

let project: string;
const packed: Record<string, string[]> = {};

beforeAll(async () => {
  project = await realpath(await mkdtemp(join(tmpdir(), 'wafstat-pack-')));
  await writeFile(join(project, 'package.json'), '{ "private": true, "type": "module" }');
  const compilerOptions = {
    module: 'NodeNext',
    target: 'ES2023',
    lib: ['ES2023', 'DOM'],
    types: [],
    strict: true,
  };
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
  await run(process.execPath, [compiler, '-b', 'signer', 'client'], packages);
  const tarballs: string[] = [];
  for (const name of ['signer', 'client']) {
    const printed = await run('npm', ['pack', '--json', '--pack-destination', project], join(packages, name));
    const manifests: { filename: string; files: { path: string }[] }[] = JSON.parse(printed);
    for (const { filename, files } of manifests) {
      tarballs.push(join(project, filename));
      packed[name] = files.map(({ path }) => path);
    }
  }
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', ...tarballs], project);
}, 120_000);

afterAll(() => rm(project, { recursive: true }));

test.each(['signer', 'client'])('the %s is packed whole, without tests', (name) => {
  expect(packed[name]).toEqual(
    expect.arrayContaining(['LICENSE', 'README.md', 'dist/index.d.ts', 'dist/index.js', 'src/index.ts']),
  );
  expect(packed[name]?.filter((path) => /test|tsbuildinfo/.test(path))).toEqual([]);
});

test('a program type-checks and runs', async () => {
  await writeFile(join(project, 'program.ts'), PROGRAM);
  await run(process.execPath, [compiler, '-p', '.'], project);
  const printed = JSON.parse(await run(process.execPath, ['program.js'], project));
  const authorization = `SDK-HMAC-SHA256 Access=a, SignedHeaders=accept;host;x-sdk-date, Signature=${'0'.repeat(64)}`;
  expect(printed).toEqual({
    attacks: [{ time: 1, num: authorization.length }],
    scope: '19700101///sdk_request',
  });
});

test('the examples of the READMEs type-check', async () => {
  for (const name of ['signer', 'client']) {
    const readme = await readFile(join(packages, name, 'README.md'), 'utf8');
    const examples = [...readme.matchAll(/```ts\n(.*?)```/gs)];
    expect(examples.length).toBeGreaterThan(0);
    for (const [at, [, example = '']] of examples.entries()) {
      await writeFile(join(project, `${name}-example-${at}.ts`), example);
    }
  }
  await run(process.execPath, [compiler, '-p', '.', '--noEmit'], project);
});

/** Without the settings of an npm that runs the tests: they name the repository as the place to install to. */
async function run(command: string, args: string[], cwd: string): Promise<string> {
  const env = Object.fromEntries(npmEnvironment);
  const failed = (error: { message: string; stdout?: string }) => {
    throw new Error(`${error.message}\n${error.stdout ?? ''}`);
  };
  const { stdout } = await promisify(execFile)(command, args, { cwd, env }).catch(failed);
  return stdout;
}
