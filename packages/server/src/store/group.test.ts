import { expect, test } from 'vitest';
import { GroupCommit } from './group.ts';

class Away extends Error {}

/** Commits that end when the test says so, and what each was asked to write. */
function commits() {
  const asked: string[][] = [];
  const answers: ((error?: Error) => void)[] = [];
  const group = new GroupCommit<string, string>(
    () => 1,
    (items) => {
      asked.push([...items]);
      return new Promise((resolve, reject) => {
        answers.push((error) => (error ? reject(error) : resolve(items.map((item) => item.toUpperCase()))));
      });
    },
    (error) => error instanceof Away,
  );
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  return {
    group,
    asked,
    async answer(error?: Error) {
      await turn();
      answers.shift()?.(error);
      await turn();
    },
  };
}

test('who comes during a commit shares the next', async () => {
  const { group, asked, answer } = commits();
  const first = group.add('a');
  await answer();
  const second = group.add('b');
  await Promise.resolve();
  await Promise.resolve();
  const others = [group.add('c'), group.add('d')];
  await answer();
  await answer();
  expect(await Promise.all([first, second, ...others])).toEqual(['A', 'B', 'C', 'D']);
  expect(asked).toEqual([['a'], ['b'], ['c', 'd']]);
});

test('one that cannot be written does not take the others with it', async () => {
  const { group, answer } = commits();
  const all = Promise.allSettled([group.add('a'), group.add('b')]);
  await answer(new Error('not so'));
  await answer(new Error('not so'));
  await answer();
  expect((await all).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
});

test('when nothing can be written, those who wait hear it at once, and who comes later is tried', async () => {
  const { group, asked, answer } = commits();
  const writing = group.add('a');
  await Promise.resolve();
  await Promise.resolve();
  const all = Promise.allSettled([writing, group.add('b'), group.add('c')]);
  await answer(new Away());
  expect((await all).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(asked).toEqual([['a']]);
  const later = group.add('d');
  await answer();
  expect(await later).toBe('D');
});
