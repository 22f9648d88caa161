import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ReplyBuffers } from './reply-buffers.ts';

/** All that is asked of a response here is to say when it is closed. */
const response = () => new EventEmitter() as ServerResponse;

test('a buffer is large enough, and nobody else has it until its response is closed', () => {
  const step = fc.record({ bytes: fc.integer({ min: 1, max: 400_000 }), close: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const buffers = new ReplyBuffers();
      const underWay: { memory: ArrayBufferLike; start: number; end: number; response: ServerResponse }[] =
        [];
      for (const { bytes, close } of steps) {
        const sent = response();
        const buffer = buffers.take(bytes, sent);
        const { buffer: memory, byteOffset: start, length } = buffer;
        expect(length).toBeGreaterThanOrEqual(bytes);
        for (const other of underWay) {
          const apart = other.memory !== memory || other.end <= start || start + length <= other.start;
          expect(apart).toBe(true);
        }
        underWay.push({ memory, start, end: start + length, response: sent });
        if (close) underWay.shift()?.response.emit('close');
      }
    }),
  );
});

test('a buffer that was sent is used again', () => {
  const buffers = new ReplyBuffers();
  const sent = response();
  const first = buffers.take(100_000, sent);
  sent.emit('close');
  expect(buffers.take(90_000, response())).toBe(first);
});
