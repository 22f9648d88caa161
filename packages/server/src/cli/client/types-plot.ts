/** The attacks by category as bars, the most frequent first. */
import { ATTACK_TYPES, type AttackTypes } from '@wafstat/client';
import { dateTime } from './local-time.ts';
import { count, share } from './numbers.ts';
import type { Range } from './range.ts';
import { paint, type Terminal } from './terminal.ts';

const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'] as const;
const CELLS_MIN = 10;

export function plotTypes(types: AttackTypes, { from, to }: Range, terminal: Terminal): string[] {
  const total = ATTACK_TYPES.reduce((sum, type) => sum + types[type], 0);
  const rows = ATTACK_TYPES.map((type) => ({
    num: types[type],
    cells: [type, count(types[type]), share(types[type], total)] as const,
  })).sort((a, b) => b.num - a.num);
  const [name, number, percent] = [0, 1, 2].map((i) =>
    Math.max(...rows.map(({ cells }) => cells[i]?.length ?? 0)),
  );
  const largest = Math.max(...rows.map(({ num }) => num));
  const title = `${dateTime(from, 0, 'minutes')} to ${dateTime(to, 0, 'minutes')} (+00:00), ${count(total)} attacks`;
  const lines = rows.map(({ num, cells: [type, n, p] }) => {
    const label = `${type.padEnd(name ?? 0)}  ${n.padStart(number ?? 0)}  ${p.padStart(percent ?? 0)}`;
    const room = Math.max(CELLS_MIN, terminal.columns - label.length - 3);
    const bar = barOf(num, largest, room);
    return bar === '' ? label : `${label}  ${paint(bar, 'attacks', terminal)}`;
  });
  return [paint(title, 'bold', terminal), ...lines];
}

/** In steps of an eighth of a cell. What is not zero can be seen. */
function barOf(value: number, largest: number, room: number): string {
  if (value === 0) return '';
  const eighths = Math.max(1, Math.round((value / largest) * room * 8));
  return `${'█'.repeat(Math.floor(eighths / 8))}${EIGHTHS[eighths % 8]}`;
}
