import { readFileSync } from 'node:fs';
import { ATTACK_TYPES } from '@wafstat/client';
import { expect, test } from 'vitest';
import { byAttacks, pointsOf, totalsOf } from './categories.ts';

const NONE = Object.fromEntries(ATTACK_TYPES.map((name) => [name, 0]));
const SERIES = ATTACK_TYPES.map((key, i) => ({
  key,
  timeline: [
    { time: 1, num: i },
    { time: 2, num: key === 'rfi' ? 1_000 : 0 },
  ],
}));

test('the totals of the range are the sums of the points', () => {
  const totals = totalsOf(SERIES);
  expect(totals).toMatchObject({
    ...NONE,
    ...Object.fromEntries(ATTACK_TYPES.map((name, i) => [name, i])),
    rfi: 1_009,
  });
  expect(pointsOf(SERIES, 'rfi').at(1)?.num).toBe(1_000);
  expect(totalsOf([])).toEqual(NONE);
});

test('most attacks come first, and equal counts are in the order of the API', () => {
  expect(byAttacks(totalsOf([]))).toEqual(ATTACK_TYPES);
  expect(byAttacks(totalsOf(SERIES)).slice(0, 3)).toEqual(['rfi', 'webshell', 'whiteblackip']);
});

test('each category has a colour of its own with a contrast of 3:1 to the panel, in light and dark', () => {
  const css = readFileSync(new URL('../style/base.css', import.meta.url), 'utf8');
  const pair = (name: string) =>
    new RegExp(`--${name}: light-dark\\((#\\w{6}), (#\\w{6})\\);`).exec(css)?.slice(1) ?? [];
  const panel = pair('panel');
  for (const theme of [0, 1]) {
    const colours = ATTACK_TYPES.map((name) => pair(`category-${name}`)[theme] ?? '');
    expect(new Set(colours).size).toBe(ATTACK_TYPES.length);
    for (const colour of colours) expect(contrast(colour, panel[theme] ?? '')).toBeGreaterThan(3);
  }
});

/** By WCAG 2. */
function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [one, other].map(luminance).toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((start) => {
    const part = Number.parseInt(hex.slice(start, start + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
