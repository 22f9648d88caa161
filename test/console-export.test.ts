/** What can be taken out of the console: the call of the API, tables, a picture. */
import { expect, test } from 'vitest';
import { type Distribution, sum } from './api.ts';
import { describeDemo, FIXED, FROM } from './console-demo.ts';

describeDemo('the dashboard', (demo) => {
  test('the curl command asks the API the same question', async () => {
    const ids = await demo.api.hostIds();
    await demo.open(`/console/?${FIXED}&tz=%2B02:00&host=${ids.get('www.example.com')}`);
    await demo.page
      .context()
      .grantPermissions(['clipboard-read', 'clipboard-write'], { origin: demo.address });
    for (const [panel, path] of [
      ['.timeline', 'timeline'],
      ['.distribution', 'attack/type'],
    ] as const) {
      await demo.page.locator(`${panel} button`, { hasText: 'curl' }).click();
      await demo.page.locator(`${panel} button`, { hasText: 'Copy' }).click();
      await demo.page.locator(`${panel} button`, { hasText: 'Copied' }).waitFor();
      const command = await demo.page.evaluate<string>('navigator.clipboard.readText()');
      expect(command).toContain(
        `curl -H "X-Auth-Token: $TOKEN" '${demo.address}/v1/${demo.api.project}/waf/event/${path}?`,
      );
      const url = new URL(/'(http[^']+)'/.exec(command)?.[1] ?? '');
      const answer = await demo.api.getJson<Distribution | { requests: { time: number; num: number }[] }>(
        `waf/event/${path}${url.search}`,
      );
      const total =
        'requests' in answer && Array.isArray(answer.requests)
          ? sum(answer.requests)
          : sum(answer as Distribution);
      expect(total).toBe(await demo.number(path === 'timeline' ? 'requests' : 'attacks'));
    }
  });

  test('CSV holds every point of the API, and PNG is a picture', async () => {
    await demo.open(`/console/?${FIXED}`);
    const csv = await demo.downloaded('.timeline', 'CSV');
    const { requests, attacks } = await demo.api.timeline(FIXED);
    const lines = csv.toString().trimEnd().split('\r\n');
    expect(lines).toHaveLength(requests.length + 1);
    expect(lines[0]).toBe('from,to,requests,attacks');
    const stamp = (time: number) => new Date(time).toISOString();
    expect(lines[1]).toBe(`${stamp(FROM)},${stamp(FROM + 60_000)},${requests[0]?.num},${attacks[0]?.num}`);
    const types = (await demo.downloaded('.distribution', 'CSV')).toString();
    expect(types).toContain(`sqli,SQL injection,${(await demo.api.distribution(FIXED)).sqli}\r\n`);
    const png = await demo.downloaded('.timeline', 'PNG');
    expect(png.subarray(1, 4).toString()).toBe('PNG');
    expect(png.length).toBeGreaterThan(10_000);
  });
});
