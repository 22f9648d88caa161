/** The counters of the store are those of the lines that were appended, for any range and hosts. */
import { CATEGORIES } from '../../../packages/server/src/event.ts';
import { HOSTS, type Line } from '../ledger.ts';
import { type Checked, type Checker, CheckFailed } from './checker.ts';

const EDGES = 12;
/** Of the batches that were appended, by source. */
interface Totals {
  events: number;
  dropped: number;
}

export function checkCounters({ scheduler, ledger, reader, project, horizon }: Checked): Checker {
  const { random } = scheduler;
  const totals = new Map<string, Totals>();

  async function compare(lines: readonly Line[], hostnames: readonly string[] | undefined): Promise<void> {
    const ids = new Map((await reader.hosts(project)).map(({ hostname, id }) => [hostname, id]));
    const hosts = hostnames?.map((name) => ids.get(name) ?? 'unknown');
    const times = lines.length === 0 ? [scheduler.now] : lines.map(({ time }) => time);
    const edges = Array.from({ length: EDGES }, () => random.pick(times) + random.integer(-1, 1));
    edges.push(Math.min(...times) - 1, Math.max(...times) + 1);
    edges.sort((a, b) => a - b);
    const counts = await reader.count({ project, hosts, edges, rows: 'categories' });
    const requests = await reader.count({ project, hosts, edges, rows: 'timeline' });
    const classes = await reader.count({ project, hosts, edges, rows: 'codeClasses' });
    const selected = lines.filter(
      ({ isCounted, host }) => isCounted && (hostnames === undefined || hostnames.includes(host)),
    );
    for (const [i, to] of edges.slice(1).entries()) {
      const from = edges[i] ?? to;
      const inPoint = selected.filter(({ time }) => from <= time && time < to);
      const expected = [
        inPoint.length,
        ...CATEGORIES.map((name) => inPoint.filter(({ attack }) => attack === name).length),
        inPoint.length,
      ];
      const responses = classes.reduce((sum, row) => sum + (row[i] ?? 0), 0);
      const found = [requests[0][i], ...counts.map((row) => row[i]), responses];
      if (found.join() !== expected.join())
        throw new CheckFailed(
          `from ${from} to ${to}, hosts ${hostnames?.join() ?? 'all'}: ${found.join()} instead of ${expected.join()}`,
        );
    }
  }

  return {
    appended({ source, events, dropped }, { beforeHorizon }) {
      const total = totals.get(source.name) ?? { events: 0, dropped: 0 };
      totals.set(source.name, total);
      total.events += events.length - beforeHorizon;
      total.dropped += beforeHorizon + Object.values(dropped).reduce((sum, n) => sum + n, 0);
    },

    async settled() {
      const lines = ledger.since(horizon());
      await scheduler.native(async () => {
        await compare(lines, undefined);
        await compare(lines, random.sample(HOSTS, 2));
        for (const { name, events, dropped } of await reader.sources(project)) {
          const found = { events, dropped: Object.values(dropped).reduce((sum, n) => sum + n, 0) };
          if (JSON.stringify(found) !== JSON.stringify(totals.get(name)))
            throw new CheckFailed(
              `source ${name} has ${JSON.stringify(found)} instead of ${JSON.stringify(totals.get(name))}`,
            );
        }
      });
    },
  };
}
