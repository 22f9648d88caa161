import type { FastifyInstance } from 'fastify';
import { beforeEach, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { appOf } from '../../../../../test/routes-app.ts';
import type { Store } from '../../store/store.ts';
import { statisticsRoutes } from './routes.ts';

const NOW = Date.UTC(2026, 6, 8);
const DAY_MS = 86_400_000;
const RANGE = `from=${NOW - 7 * DAY_MS}&to=${NOW}`;

let app: FastifyInstance;
let store: Store;

beforeEach(() => {
  store = memoryStore(() => NOW, { eventsMax: 4 });
  app = appOf(statisticsRoutes(store, () => NOW, patientAdmission()));
});

async function get(parameters: string) {
  const url = `/v1/p/waf/tuning?${parameters}`;
  const response = await app.inject({ url });
  checkDocumented('GET', url, response.statusCode, response.body);
  return response;
}

async function append(count: number, ago: (i: number) => number): Promise<void> {
  const events = Array.from({ length: count }, (_, i) => ({
    time: NOW - ago(i),
    hostId: null,
    request: false,
    attack: 'sqli' as const,
    count: 1,
    details: {
      source: `198.51.100.${i}`,
      url: '/comment',
      rules: [{ id: '942100', variable: 'ARGS:text', severity: 'critical' }],
      score: 5,
    },
  }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
}

test('returns the report, with the threshold and the IDs of the query', async () => {
  await append(14, (i) => i * 12 * 3_600_000 + 1);
  const report = (await get(`${RANGE}&timezone=%2B02:00`)).json();
  expect(report).toMatchObject({
    total: 1,
    items: [
      { rules: ['942100'], path: '/comment', likely: 'false_positive', attacks: 14, alone: 14, days: 8 },
    ],
    attacks: 14,
    kept_attacks: 14,
    complete: true,
    left_out: 0,
    blocking: { would_block: 14, false_positives: 14, ready: false },
  });
  expect(report.items[0].exclusion).toContain('"id:10000,');
  const other = (await get(`${RANGE}&threshold=6&id_from=77`)).json();
  expect(other.blocking.would_block).toBe(0);
  expect(other.items[0].exclusion).toContain('"id:77,');
});

test('says that attacks are missing', async () => {
  await append(9, () => 1);
  expect((await get(RANGE)).json()).toMatchObject({ attacks: 9, kept_attacks: 4, complete: false });
});

test.each([
  ['', 'WAF.1025', 'from'],
  [`${RANGE}&threshold=0`, 'WAF.1001', "threshold is '0', but must be a whole number from 1 to 10000"],
  [`${RANGE}&id_from=x`, 'WAF.1001', "id_from is 'x'"],
  [`${RANGE}&sips=1.2.3.4`, 'WAF.1001', 'sips'],
  [`${RANGE}&timezone=Mars`, 'WAF.1001', 'timezone'],
])('refuses %s', async (parameters, code, message) => {
  const response = await get(parameters);
  expect([response.statusCode, response.json().error_code]).toEqual([400, code]);
  expect(response.json().error_msg).toContain(message);
});
