/** The page of alerts: the rules of the project, and the history of their incidents. */
import { expect, test } from 'vitest';
import { call } from './api.ts';
import { describeService } from './console-fixtures.ts';
import { ndjson } from './sandbox.ts';

describeService('alerts', (service) => {
  test('the page lists alerts and incidents, and why a message was not delivered', async () => {
    const { api, page } = service;
    await service.enter('/console/alerts');
    await page.getByText('No alerts.').waitFor();
    const rule = { kind: 'threshold', attacks: 100, within_s: 3_600 };
    // Its domain never resolves (RFC 6761).
    const alert = { name: 'flood <b>', rule, webhook: 'https://hooks.invalid/x' };
    const added = await api.get('waf/alerts', { method: 'POST', body: JSON.stringify(alert) });
    expect(added.status).toBe(200);
    const events = [{ time: Date.now() - 1_000, host: 'shop.example.com', attack: 'sqli', count: 120 }];
    await call(api.address, `/ingest/v1/${api.project}`, {
      method: 'POST',
      headers: { 'X-Auth-Token': api.token },
      body: ndjson(events),
    });
    await page.reload();
    const alerts = page.getByRole('region', { name: 'Alerts' });
    await expect.poll(() => alerts.innerText()).toContain('100 attacks within 1 hour');
    await expect.poll(() => alerts.innerText()).toContain('Open since');
    expect(await alerts.innerText()).toContain('https://hooks.invalid/***');
    const incident = page.getByRole('region', { name: 'Incidents' }).locator('tbody tr').first();
    await expect.poll(() => incident.innerText()).toContain('open waiting:');
    for (const text of ['flood <b>', '120', 'SQL injection, shop.example.com'])
      expect(await incident.innerText()).toContain(text);
  });
});
