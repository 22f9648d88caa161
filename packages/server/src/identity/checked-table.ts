/**
 * A table of the identity file. A value is JSON after a checksum of its key and the JSON, so that a damaged value or key is
 * an error, never another record or a missing one (decision 0019).
 */
import { crc32 } from 'node:zlib';
import type { Database, DatabaseOptions, Key, RangeOptions } from 'lmdb';
import * as lmdb from 'lmdb';
import { printable } from '../printable.ts';
import { IdentityDamaged } from './errors.ts';

const CHECKSUM_BYTES = 4;

/** lmdb-js exports it, but does not declare it. */
const { bufferToKeyValue } = lmdb as unknown as { bufferToKeyValue(bytes: Buffer): Key };

export class CheckedTable<V, K extends Key> {
  readonly #table: Database<Buffer, K>;
  readonly #openRaw: () => Database<Buffer, Buffer>;
  readonly name: string;

  constructor(
    open: <T, L extends Key>(name: string, options: DatabaseOptions) => Database<T, L>,
    name: string,
  ) {
    this.#table = open<Buffer, K>(name, { encoding: 'binary' });
    this.#openRaw = () => open(name, { encoding: 'binary', keyEncoding: 'binary' });
    this.name = name;
  }

  get(key: K): V | undefined {
    const stored = this.#table.get(key);
    if (stored !== undefined) return this.#decode(key, stored);
    this.#checkNeighbour(key, true);
    this.#checkNeighbour(key, false);
    return undefined;
  }

  doesExist(key: K): boolean {
    return this.get(key) !== undefined;
  }

  /** The entries from `start` (inclusive) to `end` (exclusive). Also checks those next to them: a damaged key may hide more. */
  *getRange(range: RangeOptions = {}): Generator<{ key: K; value: V }> {
    if (range.start !== undefined) this.#checkNeighbour(range.start, true);
    yield* this.#entries(range);
    if (range.end !== undefined) this.#checkNeighbour(range.end, false);
  }

  *getKeys(range?: RangeOptions): Generator<K> {
    for (const { key } of this.getRange(range)) yield key;
  }

  putSync(key: K, value: V): void {
    const text = JSON.stringify(value);
    const bytes = Buffer.allocUnsafe(CHECKSUM_BYTES + Buffer.byteLength(text));
    bytes.write(text, CHECKSUM_BYTES);
    bytes.writeUInt32BE(checksum(key, bytes), 0);
    this.#table.putSync(key, bytes);
  }

  removeSync(key: K): void {
    this.#table.removeSync(key);
  }

  entryCount(): number {
    // lmdb-js returns it, but does not declare it.
    return (this.#table.getStats() as { entryCount: number }).entryCount;
  }

  /** For `repair`: the intact entries, and the keys of the others as text. */
  scan(): { intact: { key: K; value: V }[]; damaged: string[] } {
    const intact: { key: K; value: V }[] = [];
    const damaged: string[] = [];
    for (const { key: bytes, value } of this.#openRaw().getRange()) {
      try {
        const key = bufferToKeyValue(bytes) as K;
        intact.push({ key, value: this.#decode(key, value) });
      } catch {
        damaged.push(printable(bytes.toString()));
      }
    }
    return { intact, damaged };
  }

  /** Replaces the contents. A damaged key may be out of order, where no search finds it. */
  replaceSync(entries: readonly { key: K; value: V }[]): void {
    this.#table.clearSync();
    for (const { key, value } of entries) this.putSync(key, value);
  }

  *#entries(range: RangeOptions): Generator<{ key: K; value: V }> {
    const entries = this.#table.getRange(range)[Symbol.iterator]();
    for (;;) {
      let next: ReturnType<typeof entries.next>;
      try {
        next = entries.next();
      } catch {
        // lmdb-js cannot decode the key.
        throw new IdentityDamaged(`a key of the table ${this.name} of identity.mdb is damaged`);
      }
      if (next.done) return;
      const { key, value } = next.value;
      yield { key, value: this.#decode(key, value) };
    }
  }

  /** A damaged key keeps its place, so a search for the right one ends next to it. */
  #checkNeighbour(key: Key, reverse: boolean): void {
    for (const _ of this.#entries({ start: key, reverse, limit: 1 }));
  }

  #decode(key: K, stored: Buffer): V {
    if (stored.length <= CHECKSUM_BYTES || stored.readUInt32BE(0) !== checksum(key, stored))
      throw this.#damaged(key);
    return JSON.parse(stored.toString('utf8', CHECKSUM_BYTES)) as V;
  }

  #damaged(key: Key): IdentityDamaged {
    return new IdentityDamaged(
      `the record ${JSON.stringify(key)} of the table ${this.name} of identity.mdb has a wrong checksum`,
    );
  }
}

function checksum(key: Key, value: Buffer): number {
  return crc32(value.subarray(CHECKSUM_BYTES), crc32(JSON.stringify(key)));
}
