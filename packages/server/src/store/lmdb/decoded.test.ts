import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DecodedChunks } from './decoded.ts';

const NUMBERS = 10;
/** What an entry counts as: its numbers, and 16 for the rest of it. */
const ENTRY = NUMBERS + 16;

test('what is answered is what stands in the chunk now, however little there is room for', () => {
  const ask = fc.record({ chunk: fc.nat(3), scope: fc.nat(3), write: fc.boolean() });
  fc.assert(
    fc.property(fc.nat(6), fc.array(ask, { maxLength: 50 }), (room, asks) => {
      const decoded = new DecodedChunks(room * ENTRY);
      const stored = new Map<string, number>();
      const changes = [0, 0, 0, 0];
      let all = 0;
      for (const { chunk, scope, write } of asks) {
        if (write) {
          stored.set(`${chunk} ${scope}`, all);
          changes[chunk] = (changes[chunk] ?? 0) + 1;
          all++;
        }
        const totalsOf = decoded.chunk(
          0,
          chunk,
          all,
          () => changes[chunk] ?? 0,
          (one) => {
            const value = stored.get(`${chunk} ${one}`);
            return new Float64Array(value === undefined ? 0 : NUMBERS).fill(value ?? 0);
          },
        );
        for (const one of [scope, 0]) {
          const value = stored.get(`${chunk} ${one}`);
          expect([...totalsOf(one)]).toEqual(value === undefined ? [] : Array(NUMBERS).fill(value));
        }
      }
    }),
  );
});

test('a chunk that has not changed is decoded once, and the oldest is forgotten first', () => {
  const decoded = new DecodedChunks(2 * ENTRY);
  const made = { times: 0 };
  const make = () => {
    made.times++;
    return new Float64Array(NUMBERS);
  };
  const ask = (chunk: number) => decoded.chunk(0, chunk, 0, () => 0, make)(7);
  for (const chunk of [1, 1, 2, 1, 2]) ask(chunk);
  expect(made.times).toBe(2);
  ask(3);
  expect(made.times).toBe(3);
  ask(2);
  expect(made.times).toBe(3);
  ask(1);
  expect(made.times).toBe(4);
});
