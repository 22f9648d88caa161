import { expect, test } from 'vitest';
import { csv } from './csv.ts';

test('what would break a row is quoted, and what would be a formula is not one', () => {
  expect(
    csv([
      ['host', 'n'],
      ['a,"b"', 1],
      ['=1+1', -1],
    ]),
  ).toBe('host,n\r\n"a,""b""",1\r\n\'=1+1,-1\r\n');
});
