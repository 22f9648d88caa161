import { createClient } from '@wafstat/client';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AppWithUsers } from '../../../../test/app-with-users.ts';
import { checkDocumented } from '../../../../test/documented.ts';
import { Incidents, NO_FACTS } from '../alerts/incidents.ts';

const NOW = Date.UTC(2026, 6, 1);
const RULE = { kind: 'threshold', attacks: 100, within_s: 300, category: 'sqli' } as const;
const WEBHOOK = 'https://hooks.example.com/secret-path';

let routes: AppWithUsers;
beforeEach(async () => {
  routes = await AppWithUsers.start(() => NOW, ['reader']);
});
afterEach(() => routes.stop());

const call = (user: string, method: 'GET' | 'POST' | 'DELETE', path: string, payload?: object) =>
  routes.call(user, method, `alerts${path}`, payload);

test('administrators add and delete alerts; readers list them, without secrets', async () => {
  const added = await call('admin', 'POST', '', { name: 'sqli', rule: RULE, webhook: WEBHOOK });
  expect(added.status).toBe(200);
  const { secret, ...alert } = added.body;
  expect(secret).toMatch(/^\w{40}$/);
  expect(alert).toMatchObject({
    name: 'sqli',
    rule: RULE,
    channel: 'webhook',
    target: 'https://hooks.example.com/***',
  });
  const list = await call('reader', 'GET', '');
  expect(list.body).toEqual({ total: 1, items: [alert] });
  expect((await call('reader', 'POST', '', { name: 'x', rule: RULE, webhook: WEBHOOK })).status).toBe(403);
  expect((await call('reader', 'DELETE', `/${alert.id}`)).status).toBe(403);
  expect((await call('admin', 'DELETE', `/${alert.id}`)).status).toBe(204);
  expect((await call('admin', 'DELETE', `/${alert.id}`)).status).toBe(404);
  expect((await call('reader', 'GET', '')).body).toEqual({ total: 0, items: [] });
});

test('a mistake is a 400 that names the field', async () => {
  const refused = async (payload: object) => {
    const { status, body } = await call('admin', 'POST', '', payload);
    expect(status).toBe(400);
    return body.error_msg;
  };
  expect(await refused({ name: 'a', rule: { ...RULE, attacks: 0 }, webhook: WEBHOOK })).toContain(
    'rule.attacks must be',
  );
  expect(await refused({ name: 'a', rule: RULE })).toContain('needs a webhook or a mail address');
  expect(await refused({ name: '', rule: RULE, webhook: WEBHOOK })).toContain(
    'the alert name must have 1 to 64 characters',
  );
  expect(await refused({ name: 'a', rule: RULE, webhook: 'https://169.254.169.254/' })).toContain(
    '--alert-allow-private',
  );
  await call('admin', 'POST', '', { name: 'a', rule: RULE, webhook: WEBHOOK });
  expect(await refused({ name: 'a', rule: RULE, webhook: WEBHOOK })).toContain("already has an alert 'a'");
});

test('incidents are listed newest first, in pages, with their deliveries', async () => {
  const { body } = await call('admin', 'POST', '', { name: 'a', rule: RULE, mail: 'ops@example.com' });
  const records = new Incidents(routes.identity.alerts, () => NOW);
  const alert = routes.identity.administration.alertNamed(routes.project, body.id);
  await records.lead();
  for (const since of [NOW - 2_000, NOW - 1_000]) {
    const incident = await records.open(alert, { ...NO_FACTS, since, attacks: 120, host: '<b>' });
    if (incident && since < NOW - 1_000) await records.close(incident, NOW - 1_500, 130);
  }
  const page = await call('reader', 'GET', '/incidents?limit=1');
  expect(page.body).toMatchObject({
    total: 2,
    items: [{ alert: 'a', since: NOW - 1_000, until: null, host: '<b>' }],
  });
  const next = await call('reader', 'GET', '/incidents?limit=1&offset=1');
  expect(next.body.items).toMatchObject([
    {
      total: 130,
      until: NOW - 1_500,
      deliveries: [{ event: 'open', status: 'waiting' }, { event: 'closed' }],
    },
  ]);
  expect((await call('reader', 'GET', '')).body.items[0].open_since).toBe(NOW - 1_000);
  expect((await call('reader', 'GET', '/incidents?alert=a')).status).toBe(400);
});

test('thresholds appear in the form of the API family', async () => {
  await call('admin', 'POST', '', { name: 'sqli', rule: RULE, webhook: WEBHOOK });
  await call('admin', 'POST', '', { name: 'spike', rule: { kind: 'spike' }, webhook: WEBHOOK });
  const url = `/v2/${routes.project}/waf/alerts`;
  const response = await routes.app.inject({ url, headers: { 'X-Auth-Token': routes.token('reader') } });
  checkDocumented('GET', url, response.statusCode, response.body);
  expect(response.json()).toEqual({
    total: 1,
    items: [
      {
        id: expect.any(String),
        name: 'sqli',
        enabled: true,
        sendfreq: 5,
        times: 100,
        threat: ['sqli'],
        notice_class: 'threat_alert_notice',
        update_time: NOW,
      },
    ],
  });
});

test('weekly reports appear in the form of the API family', async () => {
  const rule = { kind: 'report', at: 'Mon 13:00' };
  const { body: alert } = await call('admin', 'POST', '', { name: 'week', rule, mail: 'ops@example.com' });
  await call('admin', 'POST', '', { name: 'sqli', rule: RULE, webhook: WEBHOOK });
  const read = async (name: string) => {
    const url = `/v1/${routes.project}/waf/security-report/${name}`;
    const response = await routes.app.inject({ url, headers: { 'X-Auth-Token': routes.token('reader') } });
    checkDocumented('GET', url, response.statusCode, response.body);
    return response.json();
  };
  const subscription = {
    subscription_id: alert.id,
    report_name: 'week',
    report_category: 'weekly_report',
    sending_period: 'afternoon',
    is_report_created: false,
  };
  expect(await read('subscriptions')).toEqual({ total: 1, items: [subscription] });
  for (const name of ['history-periods', 'sending-records'])
    expect(await read(name)).toEqual({ total: 0, items: [] });
  const [record] = routes.identity.alerts.alertsOf(routes.project).filter(({ name }) => name === 'week');
  const incidents = new Incidents(routes.identity.alerts, () => NOW);
  await incidents.lead();
  const incident = record && (await incidents.addReport(record, NOW));
  const period = {
    report_id: incident?.id,
    subscription_id: alert.id,
    stat_period: { begin_time: NOW - 7 * 86_400_000, end_time: NOW },
  };
  expect(await read('history-periods')).toEqual({ total: 1, items: [period] });
  expect((await read('sending-records')).total).toBe(0);
  if (!record || !incident) throw new Error('there is no report');
  await incidents.finish({ alert: record, incident, event: 'report' }, null);
  const sent = { ...period, report_name: 'week', report_category: 'weekly_report', sending_time: NOW };
  expect(await read('sending-records')).toEqual({ total: 1, items: [sent] });
});

test('the typed client manages alerts', async () => {
  const address = await routes.app.listen({ port: 0, host: '127.0.0.1' });
  const client = createClient({
    url: address,
    projectId: routes.project,
    credentials: { token: routes.token('admin') },
  });
  const { id, secret } = await client.addAlert({ name: 'a', rule: RULE, webhook: WEBHOOK });
  expect(secret).toHaveLength(40);
  expect((await client.alerts()).items).toMatchObject([{ id, name: 'a', open_since: null }]);
  expect(await client.incidents({ limit: 10 })).toEqual({ total: 0, items: [] });
  await client.deleteAlert(id);
  expect((await client.alerts()).total).toBe(0);
});
