import { createClient } from '@wafstat/client';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AppWithUsers } from '../../../../test/app-with-users.ts';

const NOW = Date.UTC(2026, 6, 1);

let routes: AppWithUsers;
beforeEach(async () => {
  routes = await AppWithUsers.start(() => NOW, ['reader', 'ingest']);
});
afterEach(() => routes.stop());

const call = (user: string, method: 'GET' | 'POST' | 'DELETE', path = '', payload?: object) =>
  routes.call(user, method, `annotations${path}`, payload);

test('readers list the annotations of a range, users with the role ingest add them, administrators delete them', async () => {
  const { status, body: release } = await call('ingest', 'POST', '', { text: 'release 4.2' });
  expect([status, release]).toEqual([
    200,
    { id: expect.any(String), time: NOW, text: 'release 4.2', link: null },
  ]);
  const link = 'https://git.example.com/rules/17';
  const { body: rule } = await call('admin', 'POST', '', { text: 'rule off', time: NOW - 1_000, link });
  expect(rule).toMatchObject({ time: NOW - 1_000, link });
  expect((await call('reader', 'GET')).body).toEqual({ total: 2, items: [release, rule] });
  const listed = async (query: string) => (await call('reader', 'GET', query)).body.items;
  expect(await listed(`?from=${NOW - 1_000}&to=${NOW}`)).toEqual([rule]);
  expect(await listed(`?from=${NOW}`)).toEqual([release]);
  expect((await call('reader', 'GET', '?host=a')).status).toBe(400);
  expect((await call('reader', 'GET', '?from=2&to=1')).body.error_msg).toBe('from (2) is after to (1)');
  expect((await call('admin', 'POST', '', { text: 'no link', time: 1, link: null })).status).toBe(200);
  expect(await listed('?to=2')).toMatchObject([{ text: 'no link', link: null }]);
  await call('admin', 'DELETE', `/${(await listed('?to=2'))[0].id}`);

  expect((await call('reader', 'POST', '', { text: 'x' })).status).toBe(403);
  expect((await call('ingest', 'GET')).status).toBe(403);
  expect((await call('ingest', 'DELETE', `/${rule.id}`)).status).toBe(403);
  expect((await call('admin', 'DELETE', `/${rule.id}`)).status).toBe(204);
  expect((await call('admin', 'DELETE', `/${rule.id}`)).status).toBe(404);
  expect((await call('reader', 'GET')).body).toEqual({ total: 1, items: [release] });
});

test('the typed client adds, lists and deletes annotations', async () => {
  const url = await routes.app.listen({ port: 0, host: '127.0.0.1' });
  const token = routes.token('admin');
  const client = createClient({ url, projectId: routes.project, credentials: { token } });
  const added = await client.addAnnotation({ text: 'release 4.2', time: NOW - 1 });
  expect(await client.annotations({ from: NOW - 1, to: NOW })).toEqual({ total: 1, items: [added] });
  await client.deleteAnnotation(added.id);
  expect(await client.annotations()).toEqual({ total: 0, items: [] });
});

test('a mistake is a 400 that names the field', async () => {
  for (const [payload, message] of [
    [{ text: 'x'.repeat(201) }, 'text must have 1 to 200 characters'],
    [{ text: 'a\u202eb' }, 'without invisible characters'],
    [{}, 'text must be a non-empty string'],
    [{ text: 'x', link: 'javascript:alert(1)' }, 'link must be an http or https URL'],
    [{ text: 'x', link: `https://a.example/${'x'.repeat(500)}` }, 'of up to 500 characters'],
    [{ text: 'x', time: -1 }, 'time must be a whole number of milliseconds'],
    [{ text: 'x', time: NOW + 86_400_001 }, 'at most a day from now'],
    [{ text: 'x', time: 'now' }, 'time must be a number of milliseconds'],
    [{ text: 'x', at: NOW }, "there is no field 'at'"],
  ] as const) {
    const { status, body } = await call('admin', 'POST', '', payload);
    expect([status, body.error_msg]).toEqual([400, expect.stringContaining(message)]);
  }
});

test('a project keeps the latest 1,000 annotations', async () => {
  await routes.identity.alerts.change((write) => {
    for (let i = 1; i <= 1_000; i++)
      write.putAnnotation({ id: `a${i}`, project_id: routes.project, time: i, text: 'x', link: null });
  });
  const listed = async () => (await call('admin', 'GET')).body.items;
  const { status, body } = await call('admin', 'POST', '', { text: 'one more' });
  expect(status).toBe(200);
  const kept: { id: string; time: number }[] = await listed();
  expect(kept).toHaveLength(1_000);
  expect([kept[0]?.id, kept.at(-1)?.time]).toEqual([body.id, 2]);
  const earlier = await call('admin', 'POST', '', { text: 'earlier than all others', time: 1 });
  expect([earlier.status, earlier.body.error_msg]).toEqual([
    400,
    expect.stringContaining('has 1000 later annotations'),
  ]);
  expect(await listed()).toEqual(kept);
});
