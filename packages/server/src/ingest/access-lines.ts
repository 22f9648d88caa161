/** Counts the access lines of a block by host and second from their bytes, without an object for each line. */
import { AccessBytes, mayBeHost } from './formats/access-bytes.ts';
import { type LogRecord, requestRecord } from './formats/format.ts';
import { lineEnd, Words } from './lines.ts';

interface AccessLinesOptions {
  /** Lines with other times are not taken. */
  earliest: number;
  latest: number;
  /** For lines that name no host. */
  host: string | undefined;
  /** Called at the first line of a host. */
  onHost(host: string | undefined): void;
}

/** Lines of one host within one second. */
interface HostLines {
  /** The name in the lines; empty if they have none. */
  name: Words;
  host: string | undefined;
  time: number;
  lines: number;
}

const NAMELESS = new Words(Buffer.alloc(0));

export class AccessLines {
  readonly #words: Words;
  readonly #access: AccessBytes;
  readonly #options: AccessLinesOptions;
  #hostless: HostLines | null = null;
  /** By hash of the name. Of names with the same hash, only the first is here. */
  readonly #hosts = new Map<number, HostLines>();
  readonly #records: LogRecord[];
  /** The number of lines taken. */
  taken = 0;

  /** Adds a record per line to `records`: the same object for all lines of one host and second. */
  constructor(bytes: Buffer, records: LogRecord[], options: AccessLinesOptions) {
    this.#words = new Words(bytes);
    this.#access = new AccessBytes(this.#words, options.earliest, options.latest);
    this.#records = records;
    this.#options = options;
  }

  /** Takes lines up to the first that is not certainly an access line, and returns the offset of that line. */
  take(start: number): number {
    const { bytes } = this.#words;
    const access = this.#access;
    let at = start;
    while (at < bytes.length) {
      const end = lineEnd(bytes, at);
      if (!access.tryParse(at, end)) break;
      const lines = access.hostEnd === at ? this.#linesWithoutHost() : this.#linesOf(at, access.hostEnd);
      if (lines === null) break;
      if (lines.time !== access.time) {
        this.#flush(lines);
        lines.time = access.time;
      }
      lines.lines++;
      this.taken++;
      at = end + 1;
    }
    return at;
  }

  /** To be called after the last line. */
  end(): void {
    if (this.#hostless !== null) this.#flush(this.#hostless);
    for (const lines of this.#hosts.values()) this.#flush(lines);
  }

  #flush(lines: HostLines): void {
    const record = requestRecord(lines.time, lines.host);
    for (let left = lines.lines; left > 0; left--) this.#records.push(record);
    lines.lines = 0;
  }

  #linesWithoutHost(): HostLines {
    this.#hostless ??= this.#open(NAMELESS, this.#options.host);
    return this.#hostless;
  }

  /**
   * Null for a host whose hash another one has (by chance, or because an attacker wants to slow us down), or whose name
   * may be the beginning of a wrapper: checked here, once per host and not per line.
   */
  #linesOf(start: number, end: number): HostLines | null {
    const hash = this.#words.hash(start, end);
    const known = this.#hosts.get(hash);
    if (known !== undefined) {
      const isSame = known.name.bytes.length === end - start && this.#words.equalsAt(known.name, start);
      return isSame ? known : null;
    }
    const name = this.#words.bytes.subarray(start, end);
    const text = name.toString('latin1');
    if (!mayBeHost(text)) return null;
    const lines = this.#open(new Words(name), text);
    this.#hosts.set(hash, lines);
    return lines;
  }

  #open(name: Words, host: string | undefined): HostLines {
    this.#options.onHost(host);
    return { name, host, time: 0, lines: 0 };
  }
}
