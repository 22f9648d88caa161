/**
 * The records of the identity file, each in two tables. A value is JSON after a checksum of its key and the JSON. So a damaged
 * value or key is never taken for another record or a missing one, and the other table still has it (decision 0019).
 */
import { crc32 } from 'node:zlib';
import type { Database, DatabaseOptions, Key } from 'lmdb';
import * as lmdb from 'lmdb';
import { printable } from '../printable.ts';
import { IdentityDamaged } from './errors.ts';

export const MIRRORED_TABLES = ['records', 'mirror'] as const;
const CHECKSUM_BYTES = 4;

/** lmdb-js exports it, but does not declare it. */
const { bufferToKeyValue } = lmdb as unknown as { bufferToKeyValue(bytes: Buffer): Key };

type RecordKey = [kind: string, id: string | number];
type OpenTable = <V, K extends Key>(name: string, options: DatabaseOptions) => Database<V, K>;

interface Entry {
  key: RecordKey;
  stored: Buffer;
}

/** What `verify` and `repair` report. */
export interface IdentityProblem {
  table: string;
  key: string;
  problem: string;
}

export class MirroredTable {
  /** Whether the last `entries` found a damaged record. */
  hasDamage = false;
  readonly #tables: readonly Database<Buffer, RecordKey>[];
  /** The same tables with undecoded keys, which may be damaged. */
  readonly #rawTables: readonly Database<Buffer, Buffer>[];

  constructor(open: OpenTable) {
    this.#tables = MIRRORED_TABLES.map((name) => open(name, { encoding: 'binary' }));
    const raw = { encoding: 'binary', keyEncoding: 'binary' } as const;
    this.#rawTables = MIRRORED_TABLES.map((name) => open(name, raw));
  }

  get(key: RecordKey): unknown {
    const [first, second] = this.#tables.map((table) => table.get(key));
    const intact = [first, second].find((stored) => stored && isIntact(key, stored));
    if (intact !== undefined) return parse(intact);
    if (first === undefined && second === undefined) return undefined;
    throw damaged(key);
  }

  putSync(key: RecordKey, value: unknown): void {
    this.#checkEqual(key);
    const text = JSON.stringify(value);
    const bytes = Buffer.allocUnsafe(CHECKSUM_BYTES + Buffer.byteLength(text));
    bytes.write(text, CHECKSUM_BYTES);
    bytes.writeUInt32BE(checksum(key, bytes), 0);
    for (const table of this.#tables) table.putSync(key, bytes);
  }

  removeSync(key: RecordKey): void {
    this.#checkEqual(key);
    this.discardSync(key);
  }

  /** Removes a record that nobody reads any more, even if it is damaged. */
  discardSync(key: RecordKey): void {
    for (const table of this.#tables) table.removeSync(key);
  }

  /** Throws IdentityDamaged if a record is damaged in both tables. */
  entries(): { key: RecordKey; value: unknown }[] {
    const entries: { key: RecordKey; value: unknown }[] = [];
    let damaged = 0;
    let mirrored = 0;
    for (const { key, stored } of this.#read(0)) {
      if (typeof key === 'string') damaged++;
      else entries.push({ key, value: parse(stored) });
    }
    for (const { key } of this.#read(1)) {
      if (typeof key === 'string') damaged++;
      else mirrored++;
    }
    this.hasDamage = damaged > 0 || mirrored !== entries.length;
    if (!this.hasDamage) return entries;
    return this.#merged().map(({ key, stored }) => ({ key, value: parse(stored) }));
  }

  /** Damaged records, and those that differ between the tables. `lost`: how many are damaged in both. */
  check(): { problems: IdentityProblem[]; lost: number } {
    const scans = [this.#scan(0), this.#scan(1)] as const;
    const all = new Map([...scans[0].intact, ...scans[1].intact]);
    const problems = scans.flatMap(({ intact, damaged }, i) => {
      const table = MIRRORED_TABLES[i] ?? '';
      // A damaged entry may be the missing one.
      const differing = [...all].filter(
        ([key, { stored }]) => !(intact.get(key)?.stored.equals(stored) ?? damaged.length > 0),
      );
      return [
        ...damaged.map((key) => ({ table, key, problem: 'the record has a wrong checksum' })),
        ...differing.map(([key]) => ({ table, key, problem: 'the record is missing, or differs' })),
      ];
    });
    // Each damaged entry of a table is either intact in the other one, or lost.
    const lost = Math.max(...scans.map(({ intact, damaged }) => damaged.length + intact.size - all.size));
    return { problems, lost };
  }

  /** Rewrites both tables. A damaged key may be out of order, where no search finds it. */
  rebuildSync(): void {
    const entries = this.#merged();
    for (const table of this.#tables) {
      table.clearSync();
      for (const { key, stored } of entries) table.putSync(key, stored);
    }
  }

  #merged(): Entry[] {
    const { lost, problems } = this.check();
    if (lost > 0) throw damaged(problems[0]?.key);
    return [...new Map([...this.#scan(1).intact, ...this.#scan(0).intact]).values()];
  }

  #scan(index: number): { intact: Map<string, Entry>; damaged: string[] } {
    const intact = new Map<string, Entry>();
    const damaged: string[] = [];
    for (const { key, stored } of this.#read(index)) {
      if (typeof key === 'string') damaged.push(key);
      else intact.set(JSON.stringify(key), { key, stored });
    }
    return { intact, damaged };
  }

  /** The entries of a table. The key of a damaged one is text. */
  *#read(index: number): Generator<{ key: RecordKey | string; stored: Buffer }> {
    for (const { key: bytes, value: stored } of this.#rawTables[index]?.getRange() ?? []) {
      const key = readKey(bytes);
      const isWhole = key !== null && isIntact(key, stored);
      yield { key: isWhole ? key : printable(bytes.toString()), stored };
    }
  }

  /** A change must not find a damaged record, or miss one: the tables would then contradict each other. */
  #checkEqual(key: RecordKey): void {
    const [first, second] = this.#tables.map((table) => table.get(key));
    if (first === undefined && second === undefined) return;
    if (!first || !second?.equals(first) || !isIntact(key, first)) throw damaged(key);
  }
}

/** Null if lmdb-js cannot decode the key. */
function readKey(bytes: Buffer): RecordKey | null {
  try {
    // The checksum covers the key, so an intact one is of this type.
    return bufferToKeyValue(bytes) as RecordKey;
  } catch {
    return null;
  }
}

function isIntact(key: RecordKey, stored: Buffer): boolean {
  return stored.length > CHECKSUM_BYTES && stored.readUInt32BE(0) === checksum(key, stored);
}

function parse(stored: Buffer): unknown {
  return JSON.parse(stored.toString('utf8', CHECKSUM_BYTES));
}

function checksum(key: RecordKey, value: Buffer): number {
  return crc32(value.subarray(CHECKSUM_BYTES), crc32(JSON.stringify(key)));
}

function damaged(key: unknown): IdentityDamaged {
  return new IdentityDamaged(
    `the record ${JSON.stringify(key)} of identity.mdb is damaged: run 'wafstat verify' and 'wafstat repair'`,
  );
}
