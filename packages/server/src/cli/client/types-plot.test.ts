import { ATTACK_TYPES, type AttackTypes } from '@wafstat/client';
import { describe, expect, test } from 'vitest';
import { plotTypes } from './types-plot.ts';

const RANGE = { from: Date.UTC(2026, 6, 1), to: Date.UTC(2026, 6, 2) };
const TERMINAL = { columns: 50, rows: 24, colour: false };

function countsOf(counts: Partial<AttackTypes>): AttackTypes {
  const zero = Object.fromEntries(ATTACK_TYPES.map((type) => [type, 0]));
  // All thirteen names come from the one list.
  return { ...zero, ...counts } as AttackTypes;
}

describe('the plot of attack types', () => {
  test('has all thirteen, the most frequent first, with counts and shares', () => {
    const lines = plotTypes(countsOf({ sqli: 1_500, robot: 2_998, rfi: 2 }), RANGE, TERMINAL);
    expect(lines).toHaveLength(14);
    expect(lines.slice(0, 5)).toEqual([
      '2026-07-01 00:00 to 2026-07-02 00:00 (+00:00), 4,500 attacks',
      'robot         2,998   66.6%  ████████████████████',
      'sqli          1,500   33.3%  ██████████',
      'rfi               2  0.044%  ▏',
      'xss               0    0.0%',
    ]);
  });

  test('without attacks has no bars', () => {
    expect(plotTypes(countsOf({}), RANGE, TERMINAL).join('\n')).not.toMatch(/[█-▏]/);
  });

  test('fits the terminal, and is coloured only where that is allowed', () => {
    for (const columns of [40, 80, 200]) {
      const lines = plotTypes(countsOf({ xss: 7 }), RANGE, { ...TERMINAL, columns });
      for (const line of lines.slice(1)) expect(line.length).toBeLessThan(columns);
      expect(lines.join('')).not.toContain('\u001b');
    }
    expect(plotTypes(countsOf({ xss: 7 }), RANGE, { ...TERMINAL, colour: true })[1]).toContain('\u001b[31m█');
  });
});
