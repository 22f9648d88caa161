import { expect, test } from 'vitest';
import { GroupCommit } from './group-commit.ts';

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
