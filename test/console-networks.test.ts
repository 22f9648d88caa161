/** What the dashboard shows only with `--geoip`. */
import { expect, test } from 'vitest';
import { call } from './api.ts';
import { describeService } from './console-fixtures.ts';
import { mmdbFile } from './mmdb.ts';
import { ndjson } from './sandbox.ts';

const NETWORKS = {
  '192.0.2.0/24': { autonomous_system_number: 64_500, autonomous_system_organization: 'One <b>' },
  '198.51.100.0/24': { autonomous_system_number: 64_501, autonomous_system_organization: 'Two' },
};

describeService('networks', (service) => {
  test('the networks of the most attacks are a list if the service knows networks', async () => {
    const { api, page, sandbox } = service;
    const attack = { host: 'a.example', attack: 'sqli' };
    const time = Date.now() - 60_000;
    const sources = ['192.0.2.1', '192.0.2.2', '198.51.100.1'];
    const body = ndjson(sources.map((source, i) => ({ ...attack, time: time + i, source })));
    const headers = { 'X-Auth-Token': api.token };
    await call(api.address, `/ingest/v1/${api.project}`, { method: 'POST', headers, body });
    await service.enter('/console/');
    await page.locator('.top-list.sources tbody tr').first().waitFor();
    await page.locator('.content[aria-busy="false"]').waitFor();
    expect(await page.locator('.top-list.networks').count()).toBe(0);

    await service.server.process.kill();
    const file = sandbox.write('networks.mmdb', mmdbFile(NETWORKS));
    const listen = new URL(service.server.address).host;
    service.server = await sandbox.serve(['--geoip', file, '--listen', listen]);
    await page.reload();
    const rows = page.locator('.top-list.networks tbody tr');
    await expect.poll(() => rows.allTextContents()).toEqual(['AS64500One <b>2', 'AS64501Two1']);
    await page.goto('/console/?open=network');
    const dialog = page.getByRole('dialog', { name: 'All networks' });
    await dialog.getByRole('searchbox').fill('two');
    await expect.poll(() => dialog.locator('tbody tr').count()).toBe(1);
  });
});
