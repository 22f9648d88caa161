/** What a plot may use of the place it is drawn in. */
import type { Io } from '../command.ts';

export interface Terminal {
  columns: number;
  rows: number;
  /** Escape sequences are for terminals, and only where nobody has asked for none (no-color.org). */
  colour: boolean;
}

export function terminalOf({ stdout, env }: Pick<Io, 'stdout' | 'env'>): Terminal {
  return {
    columns: stdout.columns || 80,
    rows: stdout.rows || 24,
    colour: stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb',
  };
}

const CODES = { bold: 1, requests: 36, attacks: 31 } as const;

export function paint(text: string, style: keyof typeof CODES, { colour }: Terminal): string {
  return colour ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text;
}
