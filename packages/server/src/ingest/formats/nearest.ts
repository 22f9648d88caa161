/** For `explain`: which format an unknown line is nearest to, and what it lacks. */
import type { LogFormat, Traits } from './format.ts';
import { JSON_FORMATS, TEXT_FORMATS } from './formats.ts';
import { asObject, parseJsonLine } from './json-line.ts';
import { NATIVE_TRAITS } from './modsecurity-native.ts';

export interface Nearest {
  name: LogFormat;
  /** Undefined when the line looks like one of the format, but cannot be read. */
  lacks: string | undefined;
}

/** Undefined when the line has nothing of any format. `wanted`: only this format is tried. */
export function nearestFormat(line: string, wanted: LogFormat | 'auto'): Nearest | undefined {
  const isWanted = ({ name }: { name: LogFormat }) => wanted === 'auto' || name === wanted;
  const [value] = /^[[{]/.test(line) ? parseJsonLine(line).values : [];
  const fields = asObject(value);
  const jsonFormats = JSON_FORMATS.filter(isWanted);
  const textFormats = [...TEXT_FORMATS, NATIVE].filter(isWanted);
  if (fields !== null && jsonFormats.length > 0) return nearest(jsonFormats, fields, wanted);
  if (wanted !== 'auto' && textFormats.length === 0) return { name: wanted, lacks: 'JSON object' };
  // Enough for every trait, and bounds what an expression can cost.
  return nearest(textFormats, line.slice(0, LOOKED_AT_LENGTH), wanted);
}

const NATIVE = { name: 'modsecurity-native', traits: NATIVE_TRAITS } as const;

const LOOKED_AT_LENGTH = 4_096;

function nearest<T>(
  formats: readonly { name: LogFormat; traits: Traits<T> }[],
  value: T,
  wanted: LogFormat | 'auto',
): Nearest | undefined {
  let best: (Nearest & { share: number }) | undefined;
  for (const { name, traits } of formats) {
    const missing = traits.filter(([, test]) => !test(value));
    const share = 1 - missing.length / traits.length;
    const isNearer = share > (best?.share ?? 0) || (wanted !== 'auto' && best === undefined);
    if (isNearer) best = { name, lacks: missing[0]?.[0], share };
  }
  return best;
}
