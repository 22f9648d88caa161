import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERRORS } from './errors.ts';
import { DROP_FIXES, DROP_REASONS } from './event.ts';

const file = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
const page = (name: string) => file(`docs/${name}`);

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

test('the alert rule and the console agree with the fixes about the drops that need no action', () => {
  const needNoAction = Object.entries(DROP_FIXES).flatMap(([reason, fix]) =>
    fix.startsWith('Nothing to do') ? reason : [],
  );
  const names = (text: string | undefined) => text?.match(/\w+/g)?.sort();
  const [, rule] = /\{reason!~"(.+)"\}/.exec(file('deploy/prometheus/wafstat.rules.yml')) ?? [];
  expect(names(rule)).toEqual(needNoAction.sort());
  const [, shown] = /EXPECTED\b.* = \[(.+)\]/.exec(file('packages/console/src/parts/drops.tsx')) ?? [];
  expect(names(shown)).toEqual(needNoAction);
});
