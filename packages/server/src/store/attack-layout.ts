/**
 * Kept attacks of one project and hour, by column, so that a query reads the columns that it needs:
 *
 *   block   = head body
 *   head    = length{2} version threshold entries rules attacks first last size place*     one per section
 *   place   = length*2 + deflated, then the CRC-32 of the section unless it is empty
 *   body    = part*     each has some of the sections: times counts ranks rule-counts indexes* hashes* dictionary*
 *   deflated dictionary = parts length* deflated*     the number of parts, which have 512 values each, and their lengths
 *   packed  = width numbers     a byte, then numbers of so many bits each (0, 1, 2, 4, 8 or 16), from the low bits on
 *
 * Indexes, hashes and dictionaries are one section per column. `length` is that of the head in bytes. `attacks` is the sum of
 * the counts, `size` that of `entrySize`. `first` and `last` are times in milliseconds since the start of the hour; `times` has each as the difference from the one before. `counts` is
 * empty if all are 1, `ranks` (8 bytes each) if the hour was never over the limit. A dictionary is text, its values separated
 * by U+0000. Indexes and rule counts are packed; a column has no indexes if each value is another one. `hashes` has 8 bytes
 * for each value of the dictionary, then for each the number of its entries (2 bytes); of IDs, 2 bytes of their CRC-32. All
 * numbers of fixed length begin with the low byte.
 */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { AttackEntry } from './attack-entries.ts';

export const VERSION = 3;

/** Also bounds what a page of a list decodes; indexes have two bytes at most. */
export const BLOCK_ENTRIES_MAX = 4_096;
/** The sum of `entrySize`: larger sections would hold the event loop for more than 10 ms. */
export const BLOCK_SIZE_MAX = 1_048_576;

/** One value per entry, or one per matched rule. */
export const RULE_COLUMNS = ['rule', 'severity', 'variable', 'value'] as const;
/** Long texts come last: a query reads them of few blocks. */
export const COLUMNS = [
  ...(['host', 'attack', 'source', 'country', 'method', 'status', 'score', 'rule', 'severity'] as const),
  ...(['url', 'query', 'userAgent', 'id', 'variable', 'value'] as const),
] as const;

export type ColumnName = (typeof COLUMNS)[number];
export type RuleColumn = (typeof RULE_COLUMNS)[number];
export const COLUMN_NUMBERS = Object.fromEntries(COLUMNS.map((name, i) => [name, i])) as Record<
  ColumnName,
  number
>;
export type EntryColumn = Exclude<ColumnName, RuleColumn>;

/** In a large block, a query finds these values by their hashes: their dictionaries take longer to inflate. */
export const HASHED_COLUMNS: readonly ColumnName[] = ['source', 'url', 'rule'];
export const HASHED_ENTRIES_MIN = 1_024;
export const HASH_BYTES = 8;

/** The numbers of sections. */
export const [TIMES, COUNTS, RANKS, RULE_COUNTS, FIRST_INDEX] = [0, 1, 2, 3, 4];
export const FIRST_HASH = FIRST_INDEX + COLUMNS.length;
export const FIRST_DICTIONARY = FIRST_HASH + COLUMNS.length;
export const SECTIONS = FIRST_DICTIONARY + COLUMNS.length;
/** The parts of a body, which queries read one by one. */
export const BODY_PARTS = [0, 1, 2, 3] as const;
export type BodyPart = (typeof BODY_PARTS)[number];
/** The part of each section: hashes, which exclude most blocks; other filters and counts; the rest; long texts. */
export const PART_OF: readonly BodyPart[] = Array.from({ length: SECTIONS }, (_, section) => {
  const [url, id] = [COLUMN_NUMBERS.url, COLUMN_NUMBERS.id];
  if (section >= FIRST_DICTIONARY) return section < FIRST_DICTIONARY + url ? 1 : 3;
  if (section >= FIRST_HASH) return section === FIRST_HASH + id ? 2 : 0;
  return section === RULE_COUNTS || (section >= FIRST_INDEX && section <= FIRST_INDEX + url) ? 1 : 2;
});

/** The memory that an entry takes at least, and a rule: no block has more than 65,536 rules, so that indexes fit. */
export const ENTRY_SIZE = 32;
export const RULE_SIZE = 16;

/** The columns that `entrySize` adds up. Attackers do not choose how long the others are. */
export const SIZED_COLUMNS: readonly ColumnName[] = [
  ...(['id', 'source', 'method', 'url', 'query', 'userAgent'] as const),
  ...RULE_COLUMNS,
];

/** How much of a block an entry takes. */
export function entrySize(entry: AttackEntry): number {
  const { id, source = '', method = '', url = '', query = '', userAgent = '', rules } = entry;
  let size = ENTRY_SIZE + id.length + source.length + method.length + url.length;
  size += query.length + userAgent.length;
  for (const { id: rule, variable = '', value = '', severity = '' } of rules)
    size += RULE_SIZE + rule.length + variable.length + value.length + severity.length;
  return size;
}

/** How many values of a dictionary are deflated together: fewer would take more space. */
export const PART_VALUES = 512;

export const HEAD_LENGTH_BYTES = 2;

export function isRuleColumn(name: ColumnName): name is RuleColumn {
  return (RULE_COLUMNS as readonly string[]).includes(name);
}

export const EMPTY = new Uint8Array(0);

/** `toEntry` replaces it in values. */
export const SEPARATOR = '\0';

/** Of IDs, which are too many for longer hashes. */
export function fingerprintOf(id: string): number {
  return crc32(id) & 0xffff;
}

/** What `AttackBlock.find` searches for. Equal hashes count as equal values: docs/decisions/0033 says what that risks. */
export function valueHash(value: string): Buffer {
  return Buffer.from(hash('sha256', value, 'hex').slice(0, 2 * HASH_BYTES), 'hex');
}

export function noValue(): never {
  throw new Error('a block of attacks has an index without a value');
}
