/**
 * The record of one hour and one scope (the project or a host): a section for each top list that has values. The
 * summaries in the sections are those of top-lists.ts.
 *
 *   record  = 0 section* | 1 deflated section*
 *   section = list length summary
 */
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { AttackDetails } from '../event.ts';
import { NumberReader, RecordWriter } from './cells.ts';
import { HOUR_MS, storedCategory, TOP_LISTS, type TopListName, topKey } from './store.ts';
import { addCount, type CategoryCounts, hostPrefix, KeyHash, TopSummary } from './top-lists.ts';

/** Summaries by the position of their list in TOP_LISTS. */
export type Sections = (Uint8Array | undefined)[];

/** Larger than any: limits what a damaged record can allocate. */
const RECORD_BYTES_MAX = 256 * 1_024 * 1_024;
/** Shorter records gain little. Longer ones, as in a flood of long URLs, would make appends slow. */
const DEFLATED_BYTES_MIN = 256;
const DEFLATED_BYTES_MAX = 65_536;

const LISTS_MAX = 32;

/** Throws if the record is damaged. */
export function decodeSections(record: Uint8Array): Sections {
  const bytes =
    record[0] === 1
      ? inflateRawSync(record.subarray(1), { maxOutputLength: RECORD_BYTES_MAX })
      : record.subarray(1);
  const sections: Sections = [];
  const reader = new NumberReader(bytes);
  while (reader.at < bytes.length) {
    const list = reader.number();
    const end = reader.number() + reader.at;
    // Room for lists of newer releases.
    if (list >= LISTS_MAX || end > bytes.length) throw new Error('a record of top lists is damaged');
    sections[list] = bytes.subarray(reader.at, end);
    reader.at = end;
  }
  return sections;
}

/** Leaves `head` bytes free in front of the record. */
export function encodeSections(sections: Sections, head = 0): Buffer {
  const writer = new RecordWriter();
  writer.clear();
  for (const [list, summary] of sections.entries()) {
    if (summary === undefined) continue;
    writer.number(list);
    writer.number(summary.length);
    writer.copy(summary, 0, summary.length);
  }
  const plain = writer.bytes();
  const isWorthwhile = plain.length >= DEFLATED_BYTES_MIN && plain.length <= DEFLATED_BYTES_MAX;
  const deflated = isWorthwhile ? deflateRawSync(plain, { level: 1 }) : plain;
  const isSmaller = deflated.length < plain.length;
  const body = isSmaller ? deflated : plain;
  const record = Buffer.allocUnsafe(head + 1 + body.length);
  record[head] = isSmaller ? 1 : 0;
  record.set(body, head + 1);
  return record;
}

const URLS = TOP_LISTS.indexOf('urls');

/** Attacks to add to one record. */
export interface RecordAdditions<Scope> {
  hour: number;
  scope: Scope;
  /** Of its URLs in merges. */
  prefix: string;
  lists: (Map<string, CategoryCounts> | undefined)[];
}

interface Owner<Scope> {
  id: string;
  scope: Scope;
}

/** Attacks of a group of batches, by hour, scope and list. `Scope`: how a store names projects and hosts. */
export class TopAdditions<Scope> {
  readonly #hours = new Map<number, Map<Scope, RecordAdditions<Scope>>>();

  add(
    { time, attack, details }: { time: number; attack: string; details: AttackDetails },
    count: number,
    project: Scope,
    host: Owner<Scope> | null,
  ): void {
    const hour = Math.floor(time / HOUR_MS);
    const category = storedCategory(attack);
    const prefix = hostPrefix(host?.id ?? null);
    for (let list = 0; list < TOP_LISTS.length; list++) {
      const key = topKey(TOP_LISTS[list] as TopListName, details);
      if (key === undefined) continue;
      addTo(this.#record(hour, project, ''), list, list === URLS ? prefix + key : key, category, count);
      if (host) addTo(this.#record(hour, host.scope, prefix), list, key, category, count);
    }
  }

  #record(hour: number, scope: Scope, prefix: string): RecordAdditions<Scope> {
    let records = this.#hours.get(hour);
    if (records === undefined) {
      records = new Map();
      this.#hours.set(hour, records);
    }
    let record = records.get(scope);
    if (record === undefined) {
      record = { hour, scope, prefix, lists: [] };
      records.set(scope, record);
    }
    return record;
  }

  records(): RecordAdditions<Scope>[] {
    return [...this.#hours.values()].flatMap((records) => [...records.values()]);
  }
}

function addTo<Scope>(
  { lists }: RecordAdditions<Scope>,
  list: number,
  key: string,
  category: number,
  count: number,
): void {
  let additions = lists[list];
  if (additions === undefined) {
    additions = new Map();
    lists[list] = additions;
  }
  const counts = additions.get(key);
  if (counts) addCount(counts, category, count);
  else additions.set(key, [category, count]);
}

/** Changes the sections. Each list keeps up to `keysMax` values. */
export function addToSections<Scope>(
  sections: Sections,
  { lists, prefix }: RecordAdditions<Scope>,
  project: string,
  keysMax: number,
): void {
  const writer = new RecordWriter();
  for (const [list, additions] of lists.entries()) {
    if (additions === undefined) continue;
    const stored = sections[list];
    const summary = stored === undefined ? new TopSummary() : TopSummary.decode(stored);
    summary.add(additions, keysMax, new KeyHash(project, list === URLS ? prefix : ''));
    summary.encode(writer);
    sections[list] = Uint8Array.from(writer.bytes());
  }
}
