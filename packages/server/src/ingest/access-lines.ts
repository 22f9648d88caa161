/** Access lines of a block, added up by host and second while they are read: nothing is made for a single line. */
import { lineEnd } from './blocks.ts';
import { AccessBytes, mayBeHost } from './formats/access-bytes.ts';
import { type LogRecord, requestRecord } from './formats/format.ts';
import { Words } from './words.ts';

export interface AccessLinesOptions {
  /** Lines of other times are not taken. */
  earliest: number;
  latest: number;
  /** Of lines that name none. */
  host: string | undefined;
  /** Called at the first line of a host. */
  found(host: string | undefined): void;
}

/** The lines of one host, and of the second that came last. */
interface HostLines {
  /** The host as the lines name it. */
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
  /** By a hash of the name: of names that have the same one, only the first is here. */
  readonly #hosts = new Map<number, HostLines>();
  readonly #records: LogRecord[];
  /** How many lines were taken. */
  taken = 0;

  /** `records` gets one for each line: for those of one host and second one and the same, again and again. */
  constructor(bytes: Buffer, records: LogRecord[], options: AccessLinesOptions) {
    this.#words = new Words(bytes);
    this.#access = new AccessBytes(this.#words, options.earliest, options.latest);
    this.#records = records;
    this.#options = options;
  }

  /** Takes the lines from here on, up to the first that must be read otherwise, and answers where that one begins. */
  take(start: number): number {
    const { bytes } = this.#words;
    const access = this.#access;
    let at = start;
    while (at < bytes.length) {
      const end = lineEnd(bytes, at);
      if (!access.tryParse(at, end)) break;
      const lines = access.hostEnd === at ? this.#linesOfNone() : this.#linesOf(at, access.hostEnd);
      if (lines === null) break;
      if (lines.time !== access.time) {
        this.#close(lines);
        lines.time = access.time;
      }
      lines.lines++;
      this.taken++;
      at = end + 1;
    }
    return at;
  }

  /** No more lines are to come. */
  end(): void {
    if (this.#hostless !== null) this.#close(this.#hostless);
    for (const lines of this.#hosts.values()) this.#close(lines);
  }

  #close(lines: HostLines): void {
    const record = requestRecord(lines.time, lines.host);
    const records = this.#records;
    for (let left = lines.lines; left > 0; left--) records.push(record);
    lines.lines = 0;
  }

  #linesOfNone(): HostLines {
    this.#hostless ??= this.#open(NAMELESS, this.#options.host);
    return this.#hostless;
  }

  /**
   * Null for a host whose hash another one has (a rare chance, or someone's wish to slow us down), or whose name may be
   * the beginning of a wrapper: checked here, where it costs once for each host and not for each line.
   */
  #linesOf(start: number, end: number): HostLines | null {
    const hash = this.#words.hash(start, end);
    const known = this.#hosts.get(hash);
    if (known !== undefined) return this.#isAt(known.name, start, end) ? known : null;
    const name = this.#words.bytes.subarray(start, end);
    const text = name.toString('latin1');
    if (!mayBeHost(text)) return null;
    const lines = this.#open(new Words(name), text);
    this.#hosts.set(hash, lines);
    return lines;
  }

  #isAt(name: Words, start: number, end: number): boolean {
    return name.bytes.length === end - start && this.#words.holds(name, start);
  }

  #open(name: Words, host: string | undefined): HostLines {
    this.#options.found(host);
    return { name, host, time: 0, lines: 0 };
  }
}
