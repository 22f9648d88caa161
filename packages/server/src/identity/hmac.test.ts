import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { hmacUnder } from './hmac.ts';

test('is what the library computes, for any key and any texts one after the other', () => {
  const text = fc.oneof(fc.string({ maxLength: 200 }), fc.string({ unit: 'binary', maxLength: 600 }));
  fc.assert(
    fc.property(text, fc.array(text, { minLength: 1, maxLength: 5 }), (secret, messages) => {
      const hmac = hmacUnder(secret);
      for (const message of messages) {
        expect(hmac(message)).toBe(createHmac('sha256', secret).update(message).digest('hex'));
      }
    }),
  );
});
