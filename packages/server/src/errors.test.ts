import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERRORS } from './errors.ts';
import { DROP_REASONS } from './event.ts';

const page = (name: string) => readFileSync(new URL(`../../../docs/${name}`, import.meta.url), 'utf8');

test('docs/errors.md lists every code with its status, and no other', () => {
  const documented = [...page('errors.md').matchAll(/^\| `(WAF\.\d{4})` \| (\d{3}) \|/gm)].map(
    ([, code, status]) => [code, Number(status)],
  );
  const codes = Object.entries(ERRORS).map(([code, { status }]) => [code, status]);
  expect(documented.sort()).toEqual(codes.sort());
});

test('docs/log-formats.md lists every drop reason with an anchor for `wafstat explain`', () => {
  for (const reason of Object.keys(DROP_REASONS)) {
    expect(page('log-formats.md')).toContain(`| <a id="${reason}"></a>\`${reason}\` |`);
  }
});
