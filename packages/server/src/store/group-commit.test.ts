import { expect, test } from 'vitest';
import type { Event } from '../event.ts';
import { GroupCommit, weighBatch } from './group-commit.ts';

class Unavailable extends Error {}

/** A group commit whose writes the test completes, and the groups written so far. */
function controlledCommits() {
  const groups: string[][] = [];
  const pending: ((error?: Error) => void)[] = [];
  const group = new GroupCommit<string, string>(
    () => 1,
    (items) => {
      groups.push([...items]);
      return new Promise((resolve, reject) => {
        pending.push((error) => (error ? reject(error) : resolve(items.map((item) => item.toUpperCase()))));
      });
    },
    (error) => error instanceof Unavailable,
  );
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  return {
    group,
    groups,
    async complete(error?: Error) {
      await turn();
      pending.shift()?.(error);
      await turn();
    },
  };
}

test('items that arrive during a commit share the next one', async () => {
  const { group, groups, complete } = controlledCommits();
  const first = group.add('a');
  await complete();
  const second = group.add('b');
  await Promise.resolve();
  await Promise.resolve();
  const others = [group.add('c'), group.add('d')];
  await complete();
  await complete();
  expect(await Promise.all([first, second, ...others])).toEqual(['A', 'B', 'C', 'D']);
  expect(groups).toEqual([['a'], ['b'], ['c', 'd']]);
});

test('an item that cannot be written does not fail the others', async () => {
  const { group, complete } = controlledCommits();
  const all = Promise.allSettled([group.add('a'), group.add('b')]);
  await complete(new Error('not so'));
  await complete(new Error('not so'));
  await complete();
  expect((await all).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
});

test('an error that concerns all items rejects the waiting ones at once, and later items are tried', async () => {
  const { group, groups, complete } = controlledCommits();
  const writing = group.add('a');
  await Promise.resolve();
  await Promise.resolve();
  const all = Promise.allSettled([writing, group.add('b'), group.add('c')]);
  await complete(new Unavailable());
  expect((await all).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(groups).toEqual([['a']]);
  const later = group.add('d');
  await complete();
  expect(await later).toBe('D');
});

test('the weight of a batch counts the records of hosts and hours, which a flood makes large', () => {
  const at = (hostId: string, time: number): Event => {
    const details = { source: '10.0.0.1' };
    return { time, hostId, request: true, attack: 'xss', count: 1, details };
  };
  const weigh = (events: Event[]) => weighBatch({ events });
  const alone = weigh([at('a', 0)]);
  const many = Array.from({ length: 100 }, (_, i) => at('a', i));
  expect(weigh(many)).toBeLessThan(2 * alone);
  expect(weigh(many.map((event, i) => ({ ...event, hostId: `${i}` })))).toBe(100 * alone);
  expect(weigh([at('a', 0), at('b', 0), at('a', 3_600_000)])).toBe(3 * alone);
  // Without details, only the event and the counts of its minute.
  expect(weigh([{ time: 0, hostId: 'a', request: true, attack: 'xss', count: 1 }])).toBe(25);
});
