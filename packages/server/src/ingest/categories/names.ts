import type { Category } from '../../event.ts';
import type { NameRow } from './vendor-tables.ts';

/** The category of a name that a firewall gave; upper and lower case are the same, because labels and rules differ in it. */
export function categoryOfName(table: readonly NameRow[], name: string): Category | null {
  const lower = name.slice(0, NAME_LENGTH_MAX).toLowerCase();
  for (const { category, names } of table) {
    for (const pattern of names) if (fits(pattern.toLowerCase(), lower)) return category;
  }
  return null;
}

/** The category of the first word or phrase of the table that a text holds: what people call attacks in descriptions. */
export function categoryOfWords(table: readonly NameRow[], text: string): Category | null {
  // Anything but letters and digits separates words, so that `SQLi - Comparison` and `sqli_comparison` are the same.
  const words = ` ${text
    .slice(0, NAME_LENGTH_MAX)
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')} `;
  for (const { category, names } of table) {
    for (const name of names) if (words.includes(` ${name} `)) return category;
  }
  return null;
}

/** No name in the tables is longer, and what a log calls a name can be anything. */
const NAME_LENGTH_MAX = 256;

function fits(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}
