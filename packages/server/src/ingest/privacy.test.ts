import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { fixtureLines } from '../../fixtures/read-fixture.ts';
import { networkOf } from '../event.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';
import { ingestFile } from './file.ts';
import { CHUNK_BYTES_MAX } from './lines.ts';
import { type Limits, Pipeline } from './pipeline.ts';

const NOW = Date.UTC(2026, 10, 16);
const DAY_MS = 86_400_000;

/** Where the fixtures have the client. Other addresses are those of the server. */
const CLIENT =
  /(client:? \\*"?|^\[\d\d\/[^\]]+\] \S+ |"(?:client_?ip|remote_address)":"|"ip":")(?:127\.0\.0\.1|192\.0\.2\.7)/gim;

function logOf(fixture: string, address: string): string {
  return `${fixtureLines(fixture).join('\n').replace(CLIENT, `$1${address}`)}\n`;
}

/** Lines of a container whose runtime splits them. */
function inParts(log: string, wrap: (text: string, isLast: boolean) => string): string {
  const wrapped = log.match(/[^\n]+\n/g)?.flatMap((line) => {
    const parts = line.match(/[\s\S]{1,400}/g) ?? [];
    return parts.map((part, i) => wrap(part, i === parts.length - 1));
  });
  return `${wrapped?.join('\n')}\n`;
}

/** Formats whose requests have several lines, and wrappers that split lines. */
const LOGS: Record<string, (address: string) => string> = {
  'nginx-error': (address) => logOf('nginx-error.log', address),
  'apache-error': (address) => logOf('apache-error.log', address),
  caddy: (address) => logOf('caddy.log', address),
  'caddy on a terminal': (address) => logOf('caddy-terminal.log', address),
  'azure-waf': (address) => logOf('azure-waf.log', address),
  cloudflare: (address) => logOf('cloudflare.log', address),
  'modsecurity-native, version 2': (address) => logOf('modsecurity2-native.log', address),
  'modsecurity-native, version 3': (address) => logOf('modsecurity3-native.log', address),
  docker: (address) =>
    inParts(logOf('modsecurity3-json.log', address), (log) =>
      JSON.stringify({ log, stream: 'stdout', time: '2026-11-15T02:20:43Z' }),
    ),
  cri: (address) =>
    inParts(logOf('modsecurity2-json.log', address), (text, isLast) =>
      `2026-11-15T02:20:43Z stdout ${isLast ? 'F' : 'P'} ${text}`.trimEnd(),
    ),
};

const ADDRESSES = { ipv4: '203.0.113.77', ipv6: '2001:db8:1:2:3:4:5:6f6f' };

/** Counts the first bytes of a log like a file that is still being written: pending requests stay open. */
async function ingest(
  content: Buffer,
  store: Store,
  attackSources: Limits['attackSources'],
  { source = 's', isComplete }: { source?: string; isComplete: boolean },
): Promise<void> {
  const limits = { retentionMs: 400 * DAY_MS, hostsMax: 10, attackSources };
  const pipeline = new Pipeline(store, limits, () => NOW);
  const file = {
    project: 'p',
    source: { name: source, format: 'auto' },
    reader: { format: 'auto' as const },
  };
  async function* stream() {
    yield content;
    if (!isComplete) throw new Error('cut off');
  }
  const steps = ingestFile(stream(), file, store, pipeline, { rotated: 'whole' });
  try {
    for await (const _ of steps);
  } catch (error) {
    if (isComplete || (error as Error).message !== 'cut off') throw error;
  }
}

/** The base64 of a text inside a longer one, without the characters that also depend on the text around it. */
function inBase64(text: string): string[] {
  return [0, 1, 2].map((offset) => {
    const encoded = Buffer.from('x'.repeat(offset) + text).toString('base64');
    return encoded.slice(offset === 0 ? 0 : 4, (encoded.length / 4 - 1) * 4);
  });
}

test.each(['prefix', 'off'] as const)(
  '--attack-sources %s: the store has no whole address, not even of open requests',
  async (attackSources) => {
    const directory = mkdtempSync(join(tmpdir(), 'wafstat-privacy-'));
    const file = join(directory, 'statistics.mdb');
    const store = lmdbStore(file, () => NOW);
    try {
      for (const [name, log] of Object.entries(LOGS)) {
        for (const address of Object.values(ADDRESSES)) {
          const content = Buffer.from(log(address));
          expect(content.includes(address)).toBe(true);
          const states: string[] = [];
          for (const cut of [0.3, 0.55, 0.8, 0.99]) {
            const source = `${name} ${address.length} ${cut}`;
            const part = content.subarray(0, Math.ceil(content.length * cut));
            await ingest(part, store, attackSources, { source, isComplete: false });
            for (const { readerState } of await store.batchesAfter('p', source, '')) states.push(readerState);
          }
          expect(states.some((state) => state !== '')).toBe(true);
        }
      }
      const query = { project: 'p', from: 0, to: NOW, limit: 9, list: 'sources' } as const;
      const networks = ['2001:db8:1::/48', '203.0.113.0/24'];
      expect((await store.top(query)).items.map(({ key }) => key).sort()).toEqual(
        attackSources === 'prefix' ? networks : [],
      );
    } finally {
      await store.close();
    }
    const stored = readFileSync(file);
    rmSync(directory, { recursive: true });
    const hidden = [...Object.values(ADDRESSES).flatMap(inBase64), '.113.77', ':3:4:5:6f6f', 'db8:1:2'];
    for (const text of hidden) expect(stored.indexOf(text), text).toBe(-1);
  },
);

test('requests count the same however often the log is cut off, and whatever is kept of addresses', async () => {
  const query = { project: 'p', from: 0, to: NOW, limit: 1_000 };
  const countsOf = async (store: Store) => ({
    attacks: await attacksIn(store),
    urls: await store.top({ ...query, list: 'urls' }),
    rules: await store.top({ ...query, list: 'rules' }),
    hosts: await store.hosts('p'),
  });
  const sourcesOf = async (store: Store) =>
    (await store.top({ ...query, list: 'sources' })).items.map(({ key, count }) => [key, count]);
  const whole = new Map<string, { counts: unknown; sources: unknown[][] }>();
  for (const [name, log] of Object.entries(LOGS)) {
    const store = memoryStore(() => NOW);
    await ingest(Buffer.from(log(ADDRESSES.ipv4)), store, 'full', { isComplete: true });
    whole.set(name, { counts: await countsOf(store), sources: await sourcesOf(store) });
  }
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...Object.keys(LOGS)),
      fc.array(fc.nat(1_000), { maxLength: 6 }),
      fc.constantFrom('full', 'prefix', 'off'),
      async (name, cuts, attackSources) => {
        const content = Buffer.from(LOGS[name]?.(ADDRESSES.ipv4) ?? '');
        const store = memoryStore(() => NOW);
        for (const cut of cuts.sort((a, b) => a - b)) {
          const part = content.subarray(0, Math.floor((content.length * cut) / 1_000));
          await ingest(part, store, attackSources, { isComplete: false });
        }
        await ingest(content, store, attackSources, { isComplete: true });
        const expected = whole.get(name);
        expect(await countsOf(store)).toEqual(expected?.counts);
        const sources = (expected?.sources ?? []).map(([key, count]) => [
          attackSources === 'prefix' ? networkOf(String(key), { ipv4: 24, ipv6: 48 }) : key,
          count,
        ]);
        expect(await sourcesOf(store)).toEqual(attackSources === 'off' ? [] : sources);
      },
    ),
  );
});

function attacksIn(store: Store) {
  return store.count({ project: 'p', edges: [0, NOW], rows: 'categories' });
}

test('a log of several chunks continues after a checkpoint', async () => {
  const content = Buffer.from((LOGS.docker?.(ADDRESSES.ipv4) ?? '').repeat(80));
  expect(content.length).toBeGreaterThan(2 * CHUNK_BYTES_MAX);
  const whole = memoryStore(() => NOW);
  await ingest(content, whole, 'off', { isComplete: true });

  const cut = memoryStore(() => NOW);
  const cutAt = content.length - 500;
  await ingest(content.subarray(0, cutAt), cut, 'off', { isComplete: false });
  await ingest(content, cut, 'off', { isComplete: true });
  expect(await attacksIn(cut)).toEqual(await attacksIn(whole));
});
