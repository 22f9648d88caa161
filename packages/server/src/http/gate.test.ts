import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Gate } from './gate.ts';

test('everything gets through in order, and never more than the limit at once, but for what is heavier alone', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 15 }), { maxLength: 30 }), async (weights) => {
      const gate = new Gate(10);
      const begun: number[] = [];
      let inside = 0;
      let count = 0;
      await Promise.all(
        weights.map((weight, i) =>
          gate.through(weight, async () => {
            begun.push(i);
            inside += weight;
            count++;
            if (count > 1) expect(inside).toBeLessThanOrEqual(10);
            for (let turn = 0; turn <= weight; turn++) await Promise.resolve();
            inside -= weight;
            count--;
          }),
        ),
      );
      expect(begun).toEqual(weights.map((_, i) => i));
    }),
  );
});

test('work that fails lets the next one in', async () => {
  const gate = new Gate(1);
  const failing = gate.through(1, () => Promise.reject(new Error('no')));
  const next = gate.through(1, async () => 'through');
  await expect(failing).rejects.toThrow('no');
  expect(await next).toBe('through');
});
