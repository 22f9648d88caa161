import fc from 'fast-check';
import { expect, test } from 'vitest';
import { endToEndHeaders } from './forward-routes.ts';

test('hop-by-hop headers are removed, including those that Connection names', () => {
  const headers = {
    host: 'waf.example.com',
    'x-auth-token': 'x',
    connection: 'keep-alive, X-Hop,\tOther',
    'keep-alive': 'timeout=5',
    'x-hop': '1',
    other: '2',
    te: 'trailers',
    'transfer-encoding': 'chunked',
    'x-forwarded-proto': 'https',
  };
  expect(endToEndHeaders(headers, ['x-forwarded-proto'])).toEqual({
    host: 'waf.example.com',
    'x-auth-token': 'x',
  });
});

test('no header is added or changed, and no hop-by-hop header is left', () => {
  const name = fc.oneof(
    fc.constantFrom('connection', 'upgrade', 'te', 'x-a', 'x-b', '__proto__', 'constructor'),
    fc.stringMatching(/^[a-z0-9-]{1,12}$/),
  );
  const value = fc.oneof(fc.string(), fc.constantFrom('X-A', 'close, x-b', 'CONSTRUCTOR'));
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value)), (entries) => {
      const headers = Object.fromEntries(entries);
      const passed = endToEndHeaders(headers, []);
      const named = (headers.connection ?? '').toLowerCase();
      for (const [key, text] of Object.entries(passed)) {
        expect(headers[key]).toBe(text);
        expect(['connection', 'upgrade', 'te', 'transfer-encoding']).not.toContain(key);
        expect(named.split(/[\s,]+/)).not.toContain(key);
      }
    }),
  );
});
