/** Annotations on the command line, over the API of a running service. */
import { afterAll, expect, test } from 'vitest';
import { Sandbox } from './sandbox.ts';

const sandbox = new Sandbox();
afterAll(() => sandbox.clear());

test('a deployment adds an annotation, everyone lists it, and a backup has it', async () => {
  const { server, api } = await sandbox.service();
  const env = { WAFSTAT_URL: server.address, WAFSTAT_PROJECT: api.project, WAFSTAT_TOKEN: api.token };
  const run = (...args: string[]) => sandbox.run(args, { env });
  const link = 'https://git.example.com/4.2';
  const added = await run('annotate', 'release 4.2', '--time', '2026-07-01 12:00', '--link', link);
  expect(added).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/^added annotation \w{32} at 2026-07-01T12:00:00.000Z\n$/),
  });
  expect((await run('annotate', 'rule 942100 off')).status).toBe(0);
  const [, id = ''] = /annotation (\w+)/.exec(added.stdout) ?? [];
  const listed = await run('annotations', '--to', '2026-07-01', '--output', 'csv');
  expect(listed.stdout.split('\r\n')).toEqual([
    'time,text,link,id',
    `2026-07-01T12:00:00.000Z,release 4.2,${link},${id}`,
    '',
  ]);
  expect((await run('annotations', '--timezone', '+08:00')).stdout).toMatch(
    /^time \(\+08:00\) +text +link +id\n.* rule 942100 off .*\n2026-07-01 20:00:00 +release 4\.2 /,
  );
  const refused = await run('annotate', 'x', '--link', 'javascript:alert(1)');
  expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining('link must be an http')]);

  await sandbox.runJson('backup', '--to', sandbox.path('copy'));
  const deleted = await run('annotations', '--delete', id);
  expect([deleted.status, deleted.stdout]).toEqual([0, `deleted annotation ${id}\n`]);
  expect((await run('annotations', '--delete', id)).stderr).toContain(`unknown annotation '${id}'`);
  await server.process.kill();
  const restored = sandbox.start(['serve', '--data', sandbox.path('copy'), '--listen', '127.0.0.1:0']);
  const address = (await restored.line('wafstat listens on ')).slice('wafstat listens on '.length);
  const list = await sandbox.run(['annotations', '--output', 'json'], {
    env: { ...env, WAFSTAT_URL: address },
  });
  expect(JSON.parse(list.stdout)).toMatchObject({ total: 2, items: [{ link: null }, { id, link }] });
});
