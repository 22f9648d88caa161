/**
 * The records of one hour. As long as the hour is small, the record of its project is a joint one: it has the top lists of
 * each host, and those of the project are their sum. Otherwise the project and each host have a record with their own lists.
 * A list is a summary of top-lists.ts.
 *
 *   record  = 0 section* | 1 deflated section* | 2 host* | 3 deflated host*
 *   host    = length byte{length} length section*            the ID, which is empty for attacks without a registered host
 *   section = list length summary
 */
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { AttackDetails } from '../event.ts';
import { KeyHash } from './hyperloglog.ts';
import { WITHOUT_HOST } from './minutes.ts';
import { NumberReader, RecordWriter } from './record-bytes.ts';
import {
  ALL_LISTS,
  type AnyListName,
  type ErrorPages,
  HOUR_MS,
  PAGE_KEYS_MAX,
  storedCategory,
  TOP_LISTS,
  type TopListName,
  topKey,
} from './store.ts';
import {
  type Additions,
  addCount,
  addCounts,
  type CategoryCounts,
  checkSummary,
  hostPrefix,
  isByHost,
  TopSummary,
} from './top-lists.ts';

/** Summaries by the position of their list in ALL_LISTS. */
export type Sections = (Uint8Array | undefined)[];

interface TopRecord {
  /** Empty in a joint record. */
  sections: Sections;
  /** The sections of each host by ID; null unless the record is joint. */
  hosts: Map<string, Sections> | null;
}

/** Larger than any record. Limits what a damaged record can allocate. */
const RECORD_BYTES_MAX = 256 * 1_024 * 1_024;
/** Shorter records gain little. Longer ones, as in a flood of long URLs, would make appends slow. */
const DEFLATED_BYTES_MIN = 128;
const DEFLATED_BYTES_MAX = 65_536;
/** The limit before compression. A larger joint record is divided. */
const JOINT_BYTES_MAX = DEFLATED_BYTES_MAX;

const DEFLATED = 1;
const JOINT = 2;

const LISTS_MAX = 32;

/** Returns a copy. Throws if the record is damaged. */
export function decodeRecord(record: Uint8Array): TopRecord {
  const kind = record[0] ?? 0;
  if (kind > (DEFLATED | JOINT)) throw new Error(`a record of top lists has the unknown kind ${kind}`);
  const bytes =
    kind & DEFLATED
      ? inflateRawSync(record.subarray(1), { maxOutputLength: RECORD_BYTES_MAX })
      : new Uint8Array(record.subarray(1));
  if (!(kind & JOINT)) return { sections: decodeSections(bytes), hosts: null };
  const hosts = new Map<string, Sections>();
  const reader = new NumberReader(bytes);
  while (reader.at < bytes.length) {
    const id = Buffer.from(take(reader, reader.number())).toString();
    hosts.set(id, decodeSections(take(reader, reader.number())));
  }
  return { sections: [], hosts };
}

function take(reader: NumberReader, length: number): Uint8Array {
  const end = reader.at + length;
  if (end > reader.bytes.length) throw new Error('a record of top lists is damaged');
  const taken = reader.bytes.subarray(reader.at, end);
  reader.at = end;
  return taken;
}

function decodeSections(bytes: Uint8Array): Sections {
  const sections: Sections = [];
  const reader = new NumberReader(bytes);
  while (reader.at < bytes.length) {
    const list = reader.number();
    // Room for lists of newer releases.
    if (list >= LISTS_MAX) throw new Error('a record of top lists is damaged');
    sections[list] = take(reader, reader.number());
  }
  return sections;
}

/** Throws if the record, or a summary in it, is damaged. */
export function checkRecord(record: Uint8Array): void {
  const { sections, hosts } = decodeRecord(record);
  for (const lists of [sections, ...(hosts?.values() ?? [])]) {
    for (const summary of lists) if (summary) checkSummary(summary);
  }
}

/** `kind`: 0 or JOINT. */
function encodeRecord(plain: Uint8Array, kind: number): Buffer {
  const isWorthwhile = plain.length >= DEFLATED_BYTES_MIN && plain.length <= DEFLATED_BYTES_MAX;
  const deflated = isWorthwhile ? deflateRawSync(plain, { level: 1 }) : plain;
  const isSmaller = deflated.length < plain.length;
  return Buffer.concat([Uint8Array.of(isSmaller ? kind | DEFLATED : kind), isSmaller ? deflated : plain]);
}

function sectionBytes(sections: Sections): Uint8Array {
  const writer = new RecordWriter();
  writer.clear();
  for (const [list, summary] of sections.entries()) {
    if (summary === undefined) continue;
    writer.number(list);
    writer.number(summary.length);
    writer.copy(summary, 0, summary.length);
  }
  return writer.bytes();
}

function jointBytes(hosts: ReadonlyMap<string, Sections>): Uint8Array {
  const writer = new RecordWriter();
  writer.clear();
  for (const id of [...hosts.keys()].sort()) {
    for (const part of [Buffer.from(id), sectionBytes(hosts.get(id) ?? [])]) {
      writer.number(part.length);
      writer.copy(part, 0, part.length);
    }
  }
  return writer.bytes();
}

const PAGES = ALL_LISTS.indexOf('pages');

class ListAddition extends Map<string, CategoryCounts> implements Additions {
  lost: CategoryCounts = [];
  error = 0;

  addTo(key: string, counts: CategoryCounts): void {
    const known = this.get(key);
    if (known) addCounts(known, counts);
    else this.set(key, counts.slice());
  }
}

type ListAdditions = (Additions | undefined)[];

/** Attacks of one hour to add, by host ID. */
export type HourAdditions = ReadonlyMap<string, ListAdditions>;

/** Attacks of a group of batches, by hour, host and list. */
export class TopAdditions {
  readonly hours = new Map<number, Map<string, (ListAddition | undefined)[]>>();

  /** `hostId`: null without a registered host. */
  add(
    { time, attack, details }: { time: number; attack: string; details: AttackDetails },
    count: number,
    hostId: string | null,
  ): void {
    const category = storedCategory(attack);
    for (let list = 0; list < TOP_LISTS.length; list++) {
      const key = topKey(TOP_LISTS[list] as TopListName, details);
      if (key === undefined) continue;
      const lists = this.#lists(Math.floor(time / HOUR_MS), hostId ?? WITHOUT_HOST);
      const additions = openAddition(lists, list);
      const counts = additions.get(key);
      if (counts) addCount(counts, category, count);
      else additions.set(key, [category, count]);
    }
  }

  /** `hostId`: null without a registered host. */
  addPages({ hour, code, paths, lost, error }: ErrorPages, hostId: string | null): void {
    const additions = openAddition(this.#lists(hour, hostId ?? WITHOUT_HOST), PAGES);
    for (const [path, count] of paths) additions.addTo(path, [code, count]);
    if (lost > 0) addCount(additions.lost, code, lost);
    additions.error += error;
  }

  #lists(hour: number, host: string): (ListAddition | undefined)[] {
    let hosts = this.hours.get(hour);
    if (hosts === undefined) {
      hosts = new Map();
      this.hours.set(hour, hosts);
    }
    let lists = hosts.get(host);
    if (lists === undefined) {
      lists = [];
      hosts.set(host, lists);
    }
    return lists;
  }
}

function openAddition(lists: (ListAddition | undefined)[], list: number): ListAddition {
  const known = lists[list] ?? new ListAddition();
  lists[list] = known;
  return known;
}

export interface ChangedRecord {
  hostId: string | null;
  record: Buffer;
}

interface HourMerge {
  additions: HourAdditions;
  /** Reads the record of a host, or of the project for null. The result is valid until the next read. */
  read: (hostId: string | null) => Uint8Array | undefined;
  project: string;
  /** How many values a list keeps. */
  keysMax: number;
}

/** The records of one hour after additions, that of the project last. Each step takes about a millisecond. */
export function* addToRecords(merge: HourMerge): Generator<void, ChangedRecord[]> {
  const stored = merge.read(null);
  const kind = stored?.[0] ?? JOINT;
  return yield* kind & JOINT ? addToJointRecord(stored, merge) : addToOwnRecords(merge);
}

function* addToJointRecord(
  stored: Uint8Array | undefined,
  { additions, project, keysMax }: HourMerge,
): Generator<void, ChangedRecord[]> {
  const divide = (all: HourAdditions) =>
    addToOwnRecords({ additions: all, read: () => undefined, project, keysMax });
  // A joint record would be divided at once.
  if (stored === undefined && longest(additions) > keysMax) return yield* divide(additions);
  const hosts: Map<string, Sections> = (stored && decodeRecord(stored).hosts) ?? new Map();
  let isSmall = true;
  for (const [host, lists] of additions) {
    const sections = hosts.get(host) ?? [];
    hosts.set(host, sections);
    const hashOf = () => new KeyHash(project);
    const longestList = yield* addToSections(sections, lists, Number.POSITIVE_INFINITY, hashOf);
    if (longestList > keysMax) isSmall = false;
  }
  const plain = jointBytes(hosts);
  if (isSmall && plain.length <= JOINT_BYTES_MAX)
    return [{ hostId: null, record: encodeRecord(plain, JOINT) }];
  // Everything in it but `pages` is exact, so it can be added to empty records.
  const all = new Map<string, ListAdditions>();
  for (const [host, sections] of hosts) {
    all.set(host, additionsOf(sections));
    yield;
  }
  return yield* divide(all);
}

/** How many values the longest list of a host gets, besides `pages`, which is cut in joint records, too. */
function longest(additions: HourAdditions): number {
  const sizes = [...additions.values()].flatMap((lists) =>
    lists.map((values, list) => (list === PAGES ? 0 : (values?.size ?? 0))),
  );
  return sizes.reduce((a, b) => Math.max(a, b), 0);
}

function additionsOf(sections: Sections): ListAdditions {
  return sections.map((summary) => {
    if (summary === undefined) return undefined;
    const { entries, uncertainty } = TopSummary.decode(summary);
    const values = new Map(Array.from(entries, ([key, { counts }]) => [key, counts]));
    return Object.assign(values, uncertainty);
  });
}

function* addToOwnRecords({
  additions,
  read,
  project,
  keysMax,
}: HourMerge): Generator<void, ChangedRecord[]> {
  const changed: ChangedRecord[] = [];
  for (const [hostId, lists] of additions) {
    if (hostId === WITHOUT_HOST) continue;
    // The prefix makes the sketches of hosts and projects match.
    const prefix = hostPrefix(hostId);
    const hashOf = (list: number) => new KeyHash(project, isByHost(ALL_LISTS[list]) ? prefix : '');
    changed.push({ hostId, record: yield* addToOwnRecord(read(hostId), lists, keysMax, hashOf) });
  }
  const sum = yield* sumOf(additions);
  const ofProject = yield* addToOwnRecord(read(null), sum, keysMax, () => new KeyHash(project));
  return [...changed, { hostId: null, record: ofProject }];
}

function* addToOwnRecord(
  stored: Uint8Array | undefined,
  lists: ListAdditions,
  keysMax: number,
  hashOf: (list: number) => KeyHash,
): Generator<void, Buffer> {
  const sections = stored === undefined ? [] : decodeRecord(stored).sections;
  yield* addToSections(sections, lists, keysMax, hashOf);
  return encodeRecord(sectionBytes(sections), 0);
}

function* sumOf(additions: HourAdditions): Generator<void, ListAdditions> {
  const sums: (ListAddition | undefined)[] = [];
  for (const [host, lists] of additions) {
    for (const [list, values] of lists.entries()) {
      if (values === undefined) continue;
      const sum = openAddition(sums, list);
      const prefix = isByHost(ALL_LISTS[list]) ? hostPrefix(host) : '';
      for (const [key, counts] of values) sum.addTo(prefix + key, counts);
      addCounts(sum.lost, values.lost ?? []);
      // A path belongs to one host.
      sum.error = Math.max(sum.error, values.error ?? 0);
    }
    yield;
  }
  return sums;
}

/** Changes the sections. Returns how many values the longest changed list has. */
function* addToSections(
  sections: Sections,
  lists: ListAdditions,
  keysMax: number,
  hashOf: (list: number) => KeyHash,
): Generator<void, number> {
  const writer = new RecordWriter();
  let longestList = 0;
  for (const [list, additions] of lists.entries()) {
    if (additions === undefined) continue;
    const stored = sections[list];
    const summary = stored === undefined ? new TopSummary() : TopSummary.decode(stored);
    if (list === PAGES) summary.add(additions, Math.min(keysMax, PAGE_KEYS_MAX), null);
    else summary.add(additions, keysMax, hashOf(list));
    summary.encode(writer);
    sections[list] = new Uint8Array(writer.bytes());
    if (list !== PAGES) longestList = Math.max(longestList, summary.entries.size);
    yield;
  }
  return longestList;
}

export interface SelectedSummary {
  summary: Uint8Array;
  /** The prefix of its keys in merges. */
  prefix: string;
}

/** The summaries that a query needs from the record of a project; null if it needs the hosts' own records. */
export function selectSummaries(
  { sections, hosts }: TopRecord,
  list: AnyListName,
  selected: readonly string[] | undefined,
): SelectedSummary[] | null {
  if (hosts === null) return selected === undefined ? selectOwn(sections, list) : null;
  return (selected ?? [...hosts.keys()]).flatMap((id) => selectOwn(hosts.get(id) ?? [], list, id));
}

/** `hostId` is undefined in a project's own record, whose URLs already have prefixes. */
export function selectOwn(sections: Sections, list: AnyListName, hostId?: string): SelectedSummary[] {
  const summary = sections[ALL_LISTS.indexOf(list)];
  if (summary === undefined) return [];
  return [{ summary, prefix: hostId === undefined || !isByHost(list) ? '' : hostPrefix(hostId) }];
}
