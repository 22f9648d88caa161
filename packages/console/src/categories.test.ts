import { readFileSync } from 'node:fs';
import { ATTACK_TYPES, type AttackType } from '@wafstat/client';
import { expect, test } from 'vitest';
import { byAttacks } from './categories.ts';
import { totalsOf, withAllCategories } from './counts.ts';

test('most attacks come first, and equal counts are in the order of the API', () => {
  const order = (attacks: Partial<Record<AttackType, number[]>>) =>
    byAttacks(totalsOf(withAllCategories({ requests: [0, 0], attacks, blocked: {} }).attacks));
  expect(order({})).toEqual(ATTACK_TYPES);
  const first = order({ whiteblackip: [1, 1], rfi: [0, 9], webshell: [2, 1] });
  expect(first.slice(0, 4)).toEqual(['rfi', 'webshell', 'whiteblackip', 'xss']);
});

const CSS = readFileSync(new URL('../style/base.css', import.meta.url), 'utf8');
/** The colours of each category: light, dark. */
const COLOURS = ATTACK_TYPES.map((name) => ({ name, pair: themePair(`category-${name}`) }));

test('each category has a colour of its own with a contrast of 3:1 to the panel, in light and dark', () => {
  const panel = themePair('panel');
  for (const theme of [0, 1]) {
    const colours = COLOURS.map(({ pair }) => pair[theme] ?? '');
    expect(new Set(colours).size).toBe(ATTACK_TYPES.length);
    for (const colour of colours) expect(contrast(colour, panel[theme] ?? '')).toBeGreaterThan(3);
  }
});

test('a category has the same hue in light and dark', () => {
  for (const { name, pair } of COLOURS) {
    const [light, dark] = pair.map((hex) => hue(oklab(hex)));
    const turn = Math.abs((light ?? 0) - (dark ?? 0));
    expect(Math.min(turn, 360 - turn), name).toBeLessThan(10);
  }
});

test('no two categories have similar colours, in light and dark', () => {
  for (const theme of [0, 1]) {
    const colours = COLOURS.map(({ name, pair }) => ({ name, lab: oklab(pair[theme] ?? '') }));
    for (const [i, one] of colours.entries()) {
      for (const other of colours.slice(i + 1)) {
        const distance = Math.hypot(...one.lab.map((part, axis) => part - (other.lab[axis] ?? 0)));
        expect(distance, `${one.name} and ${other.name}`).toBeGreaterThan(0.09);
      }
    }
  }
});

function themePair(name: string): string[] {
  return new RegExp(`--${name}: light-dark\\((#\\w{6}), (#\\w{6})\\);`).exec(CSS)?.slice(1) ?? [];
}

/** By WCAG 2. */
function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [one, other].map(luminance).toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = linear(hex);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Lightness, green to red, blue to yellow, as CSS Color 4 defines Oklab. */
function oklab(hex: string): number[] {
  const [red = 0, green = 0, blue = 0] = linear(hex);
  const l = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const m = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const s = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/** In degrees. */
function hue([, a = 0, b = 0]: readonly number[]): number {
  return ((Math.atan2(b, a) * 180) / Math.PI + 360) % 360;
}

function linear(hex: string): number[] {
  return [1, 3, 5].map((start) => {
    const part = Number.parseInt(hex.slice(start, start + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
}
