/** Removes the wrappers of container runtimes, syslog, journald and CSV from log lines, and joins lines that they split. */
import type { DropReason } from '../event.ts';
import { ByteQueue } from './byte-stream.ts';
import { asObject, asText, type JsonObject, tryParse } from './formats/json.ts';
import { LINE_BYTES_MAX } from './lines.ts';

export type Wrapper = 'docker' | 'cri' | 'syslog' | 'compose' | 'journald' | 'csv';

/** The content of one wrapper. */
interface Unwrapped {
  /** Null for the length before a syslog message, which is part of the syslog wrapper. */
  wrapper: Wrapper | null;
  /** Identifies the stream inside the log. Parts of a line and lines of a block are joined only within a stream. */
  origin: string;
  /** Trimmed lines. Empty while the rest of a line is missing. */
  lines: readonly string[];
  /** Lines that were dropped. */
  dropped: readonly DropReason[];
  /** Other lines may begin like this wrapper: if no format matches the content, the whole line is parsed. */
  isGuess: boolean;
}

/** The origin of a line without a wrapper. */
export const BARE = '';

/** Enough for a wrapper in a wrapper, and the length before a syslog message. */
export const LAYERS_MAX = 3;

/** Streams with an incomplete line at the same time: a container has two streams. */
const STREAMS_MAX = 8;

/** The parts of a line so far. */
interface Parts {
  /** Null for a line beyond the length limit: its drop is counted, and its other parts are skipped. */
  text: ByteQueue | null;
  /** When the last part was read. */
  touched: number;
}

/** Plain data, to continue in another process: origin, time of the last part, the text so far in base64. */
export type PartsState = [origin: string, touched: number, text: string | null][];

export class Unwrapper {
  /** The most recently extended stream comes last. */
  readonly #parts = new Map<string, Parts>();
  /** The length of all parts together: at most LINE_BYTES_MAX, so that the state stays small. */
  #bytes = 0;

  constructor(state: PartsState = []) {
    for (const [origin, touched, text] of state) {
      this.#set(origin, { text: text === null ? null : queueOf(Buffer.from(text, 'base64')), touched });
    }
  }

  /** Null for a line without a wrapper. `outer` is the origin of the line. */
  unwrap(line: string, outer: string, now: number): Unwrapped | null {
    const frames = octetFrames(line);
    if (frames !== null) return { wrapper: null, origin: outer, isGuess: true, ...limited(frames) };
    const wrapped = wrappedLine(line);
    if (wrapped === null) return null;
    const { wrapper, stream, text } = wrapped;
    const origin = `${outer}/${wrapper} ${stream}`;
    const isGuess = wrapper === 'syslog' || wrapper === 'compose' || wrapper === 'csv';
    if (text === null) return { wrapper, origin, lines: [], dropped: ['bad_record'], isGuess };
    if (!wrapped.isPart && !this.#parts.has(origin)) {
      return { wrapper, origin, isGuess, ...linesOf(text) };
    }
    return { wrapper, origin, isGuess, ...this.#join(origin, text, wrapped.isPart, now) };
  }

  /** Drops lines whose last part was read before this time, and returns how many. */
  flush(before: number): number {
    let unfinished = 0;
    for (const [origin, { text, touched }] of this.#parts) {
      if (touched >= before) continue;
      this.#delete(origin);
      if (text !== null) unfinished++;
    }
    return unfinished;
  }

  /** Whether `flush` drops anything. */
  hasPending(before: number): boolean {
    return [...this.#parts.values()].some(({ text, touched }) => text !== null && touched < before);
  }

  get hasState(): boolean {
    return this.#parts.size > 0;
  }

  state(): PartsState {
    return [...this.#parts].map(([origin, { text, touched }]) => [
      origin,
      touched,
      text?.bytes.toString('base64') ?? null,
    ]);
  }

  #join(origin: string, text: string, isPart: boolean, now: number): Lines {
    const before = this.#delete(origin);
    const joined = before === undefined ? new ByteQueue() : before.text;
    joined?.add(Buffer.from(text));
    const isTooLong = joined !== null && joined.bytes.length > LINE_BYTES_MAX;
    if (!isPart && joined !== null && !isTooLong) return linesOf(joined.bytes.toString());
    if (isPart) this.#set(origin, { text: isTooLong ? null : joined, touched: now });
    return { lines: [], dropped: [...(isTooLong ? (['line_too_long'] as const) : []), ...this.#evict()] };
  }

  /** Drops the least recently extended streams until the rest is within the limits. */
  #evict(): DropReason[] {
    const dropped: DropReason[] = [];
    for (const [origin, { text }] of this.#parts) {
      if (this.#parts.size <= STREAMS_MAX && this.#bytes <= LINE_BYTES_MAX) break;
      this.#delete(origin);
      if (text !== null) dropped.push('unfinished_record');
    }
    return dropped;
  }

  #set(origin: string, parts: Parts): void {
    this.#parts.set(origin, parts);
    this.#bytes += parts.text?.bytes.length ?? 0;
  }

  #delete(origin: string): Parts | undefined {
    const parts = this.#parts.get(origin);
    if (parts === undefined) return undefined;
    this.#parts.delete(origin);
    this.#bytes -= parts.text?.bytes.length ?? 0;
    return parts;
  }
}

function queueOf(bytes: Buffer): ByteQueue {
  const queue = new ByteQueue();
  queue.add(bytes);
  return queue;
}

/** The same limit as for records in a line of JSON. */
const LINES_MAX = 10_000;

type Lines = Pick<Unwrapped, 'lines' | 'dropped'>;

/** Only journald has messages of several lines; elsewhere a line end is at the end. */
function linesOf(text: string): Lines {
  const trimmed = text.trim();
  if (!trimmed.includes('\n')) return { lines: [trimmed], dropped: [] };
  return limited(trimmed.split('\n', LINES_MAX + 1).map((line) => line.trim()));
}

function limited(lines: readonly string[]): Lines {
  return lines.length > LINES_MAX
    ? { lines: lines.slice(0, LINES_MAX), dropped: ['too_many_records'] }
    : { lines, dropped: [] };
}

interface Wrapped {
  wrapper: Wrapper;
  stream: string;
  /** Null if the wrapper says that it omits the text. */
  text: string | null;
  /** The next line of the same stream continues this one. */
  isPart: boolean;
}

function wrappedLine(line: string): Wrapped | null {
  if (line.startsWith('{')) return fromJson(line);
  if (line.startsWith('"')) return fromCsv(line);
  return (
    fromSyslog5424(line) ?? fromCri(line) ?? fromTimestamp(line) ?? fromSyslog(line) ?? fromCompose(line)
  );
}

/** More quotes than a log line has. Removing a million takes 0.2 s. */
const CSV_QUOTES_MAX = 10_000;

/** `"192.0.2.7 - - [..] ""GET / HTTP/1.1"" 200"`, as exported to CSV. Other columns are ignored. */
function fromCsv(line: string): Wrapped | null {
  let end = line.indexOf('"', 1);
  for (let quotes = 0; end !== -1 && line[end + 1] === '"'; quotes++) {
    if (quotes === CSV_QUOTES_MAX) return null;
    end = line.indexOf('"', end + 2);
  }
  if (end === -1 || !/^(?:[,;\t]|$)/.test(line.slice(end + 1, end + 2))) return null;
  return { wrapper: 'csv', stream: '', text: line.slice(1, end).replaceAll('""', '"'), isPart: false };
}

/** `2026-07-01T12:00:00.123456789Z stdout F line`: P for a part, F for the last one or a whole line. */
const CRI =
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::\S{0,64})?(?: |$)/;

function fromCri(line: string): Wrapped | null {
  const match = CRI.exec(line);
  if (match === null) return null;
  const [head, stream = '', tag] = match;
  return { wrapper: 'cri', stream, text: line.slice(head.length), isPart: tag === 'P' };
}

/**
 * `2026-07-01T12:00:00.123456789Z shop.example.com 192.0.2.7 - - [`: `docker logs -t` puts a time before an access line,
 * which may begin with a quoted header or a virtual host. It is not syslog, where no program has an address as its name.
 */
const TIMESTAMP =
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?=(?:"[^"]{0,1024}" )?(?:\S{1,261} )?(?:[\da-fA-F:.]{3,45}, ){0,16}(?:[\d.]{7,15}|[\da-fA-F:.]{0,44}:[\da-fA-F:.]{0,44}) - \S{1,256} \[)/;

function fromTimestamp(line: string): Wrapped | null {
  const head = TIMESTAMP.exec(line)?.[0];
  return head === undefined
    ? null
    : { wrapper: 'docker', stream: 'stdout', text: line.slice(head.length), isPart: false };
}

/**
 * `<13>Nov 15 12:02:15 host nginx[123]: line`. Files of rsyslog have no priority, and may have an ISO 8601 time. nginx
 * and Docker can omit the host; rsyslog omits the colon of messages received as RFC 5424.
 */
const SYSLOG =
  /^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) (?:(?:(?!- )(\S{0,254}[^\s:]) )?([^\s:[\]]{1,64}(?:\[[^\s[\]]{0,64}\])?):|(?!- )(\S{0,254}[^\s:]) ([^\s:[\]]{1,64}(?:\[[^\s[\]]{0,64}\])?))(?: |$)/;

function fromSyslog(line: string): Wrapped | null {
  const match = SYSLOG.exec(line);
  if (match === null) return null;
  const [head, host = match[3] ?? '', tag = match[4] ?? ''] = match;
  return syslog(`${host} ${tag}`, line.slice(head.length));
}

/** `<165>1 2026-07-01T12:00:00.000Z host app 123 ID47 [structured data] line`, `-` for missing fields. */
const SYSLOG_5424 =
  /^<\d{1,3}>\d{1,2} (?:-|\d{4}-\d\d-\d\dT\S{8,21}) (\S{1,255}) (\S{1,128}) (\S{1,128}) \S{1,32} (?=[-[])/;

function fromSyslog5424(line: string): Wrapped | null {
  const match = SYSLOG_5424.exec(line);
  if (match === null) return null;
  const [head, host = '', app = '', process = ''] = match;
  const end = structuredDataEnd(line, head.length);
  if (end === -1 || (end < line.length && line[end] !== ' ')) return null;
  return syslog(`${host} ${app} ${process}`, line.slice(end + 1));
}

/** A loop instead of a regular expression, whose stack would overflow on a megabyte. */
function structuredDataEnd(line: string, start: number): number {
  if (line[start] === '-') return start + 1;
  let at = start;
  while (line[at] === '[') {
    let inQuotes = false;
    for (at++; at < line.length && (inQuotes || line[at] !== ']'); at++) {
      if (line[at] === '\\') at++;
      else if (line[at] === '"') inQuotes = !inQuotes;
    }
    if (at >= line.length) return -1;
    at++;
  }
  return at;
}

/** rsyslog writes a tab as `#011`. It is restored only where Caddy writes tabs: elsewhere a client may have sent it. */
const ESCAPED_TABS = /^(\d{4}\/\d\d\/\d\d [\d:.]{8,18})#011([A-Z]{1,8})#011([\w.]{0,64})#011/;

function syslog(stream: string, text: string): Wrapped {
  return {
    wrapper: 'syslog',
    stream,
    text: text.trimStart().replace(ESCAPED_TABS, '$1\t$2\t$3\t'),
    isPart: false,
  };
}

/** `123 <165>1 ...`: consecutive messages, each after its length in bytes (RFC 6587, 3.4.1). */
const OCTET_COUNT = /^(\d{1,7}) (?=<\d{1,3}>)/;

function octetFrames(line: string): string[] | null {
  if (!isDigit(line.charCodeAt(0)) || !OCTET_COUNT.test(line)) return null;
  const frames: string[] = [];
  const bytes = Buffer.from(line);
  for (let start = 0; start < bytes.length && frames.length <= LINES_MAX; ) {
    const [head = '', count = ''] = frameHead(bytes, start) ?? [];
    const from = start + head.length;
    // Text without a length is not a frame; it is read as a line.
    const end = head === '' ? bytes.length : frameEnd(bytes, from, from + Number(count));
    frames.push(bytes.toString('utf8', from, end).trim());
    start = end;
  }
  return frames;
}

function frameHead(bytes: Buffer, at: number): RegExpExecArray | null {
  return isDigit(bytes[at] ?? 0) ? OCTET_COUNT.exec(bytes.toString('latin1', at, at + 16)) : null;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

const REPLACEMENT = Buffer.from('\ufffd');

/** These limit the time that a malicious line can take. */
const REPLACEMENTS_MAX = 1_000;
const HEADS_TRIED_MAX = 16;

/**
 * Where the text was not UTF-8, the length is wrong: a replacement character has three bytes and replaces one to three.
 * So the frame ends where the next one begins: at the last candidate, because a client can write text that looks like a
 * frame into its message.
 */
function frameEnd(bytes: Buffer, from: number, shortest: number): number {
  if (shortest >= bytes.length) return bytes.length;
  const longest = longestEnd(bytes, from, shortest);
  let heads = 0;
  for (let end = Math.min(longest, bytes.length); end >= shortest && heads < HEADS_TRIED_MAX; end--) {
    if (end === bytes.length && end === longest) return end;
    const head = frameHead(bytes, end);
    if (head === null) continue;
    heads++;
    if (endsBeforeFrame(bytes, end, head)) return end;
  }
  return longest >= bytes.length && frameHead(bytes, shortest) === null ? bytes.length : shortest;
}

/** Assumes that each replacement character replaces one byte. */
function longestEnd(bytes: Buffer, from: number, shortest: number): number {
  let end = shortest;
  let start = from;
  for (let found = 0; found < REPLACEMENTS_MAX; found++) {
    // Searches only for one that begins before the end: a line may have thousands of frames.
    const at = bytes.subarray(start, end + REPLACEMENT.length - 1).indexOf(REPLACEMENT);
    if (at === -1) break;
    start += at + REPLACEMENT.length;
    end += REPLACEMENT.length - 1;
  }
  return end;
}

/** Whether a frame that begins at `at` ends at another one. The `23 <13>` in `123 <13>` has a wrong length. */
function endsBeforeFrame(bytes: Buffer, at: number, [head, count]: RegExpExecArray): boolean {
  const from = at + head.length;
  const longest = longestEnd(bytes, from, from + Number(count));
  for (let end = from + Number(count); end <= longest; end++)
    if (end >= bytes.length || frameHead(bytes, end) !== null) return true;
  return false;
}

/**
 * `web-1  | line`, with colors on a terminal, and optionally a time with nine decimals. Compose writes at least two
 * spaces after the name, which a separator in a custom log format rarely has.
 */
const COMPOSE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colors begin with an escape character
  /^(?:\x1b\[[\d;]{0,16}m)?(\w[\w.@-]{0,127}) {2,128}\|(?:\x1b\[[\d;]{0,16}m)?(?: |$)(?:\x1b\[[\d;]{0,16}m)?(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z )?/;

function fromCompose(line: string): Wrapped | null {
  const match = COMPOSE.exec(line);
  if (match === null) return null;
  const [head, name = ''] = match;
  return { wrapper: 'compose', stream: name, text: line.slice(head.length), isPart: false };
}

/** The first key decides whether to parse, because most JSON has no wrapper. Keys of journald are upper case. */
const JOURNALD_KEY = /^\{\s*"[A-Z_]/;
const DOCKER_KEY = /^\{\s*"(?:log|stream|attrs|time"\s*:\s*"|source|container_|partial_)/;

function fromJson(line: string): Wrapped | null {
  // Other logs have such keys too. Searching for a required key takes a fraction of the time of parsing.
  const mayBeWrapped = DOCKER_KEY.test(line)
    ? line.includes('log"')
    : JOURNALD_KEY.test(line) && line.includes('"__REALTIME_TIMESTAMP"');
  if (!mayBeWrapped) return null;
  const fields = asObject(tryParse(line));
  return fields && (fromDocker(fields) ?? fromDockerFluentd(fields) ?? fromJournald(fields));
}

const DOCKER_FIELDS = ['log', 'stream', 'attrs', 'time'];

/** Docker's json-file: `{"log":"line\n","stream":"stdout","time":".."}`. Text without a line end is a part. */
function fromDocker(fields: JsonObject): Wrapped | null {
  const { log, stream, time } = fields;
  if (typeof log !== 'string' || typeof time !== 'string' || !isStream(stream)) return null;
  if (!Object.keys(fields).every((name) => DOCKER_FIELDS.includes(name))) return null;
  return { wrapper: 'docker', stream, text: log, isPart: !log.endsWith('\n') };
}

/** Docker's fluentd driver: `{"container_id":"..","container_name":"..","source":"stdout","log":"line"}`. */
function fromDockerFluentd({
  log,
  source,
  container_id,
  container_name,
  partial_message,
}: JsonObject): Wrapped | null {
  if (typeof log !== 'string' || typeof container_id !== 'string' || typeof container_name !== 'string')
    return null;
  if (!isStream(source)) return null;
  const stream = `${container_id.slice(0, TEXT_LENGTH_MAX)} ${source}`;
  return { wrapper: 'docker', stream, text: log, isPart: partial_message === 'true' };
}

function isStream(value: unknown): value is 'stdout' | 'stderr' {
  return value === 'stdout' || value === 'stderr';
}

const TEXT_LENGTH_MAX = 128;
/** Fields that identify a writer; Docker uses the priority to distinguish standard output from standard error. */
const JOURNALD_STREAM = ['_HOSTNAME', 'CONTAINER_ID', '_STREAM_ID', '_PID', 'PRIORITY'];

/** `journalctl -o json`. Docker and journald itself split long lines, and mark the parts. */
function fromJournald(fields: JsonObject): Wrapped | null {
  const { MESSAGE, __REALTIME_TIMESTAMP, CONTAINER_PARTIAL_MESSAGE, _LINE_BREAK } = fields;
  if (MESSAGE === undefined || __REALTIME_TIMESTAMP === undefined) return null;
  const stream = JOURNALD_STREAM.map((name) => asText(fields[name]).slice(0, TEXT_LENGTH_MAX)).join(' ');
  const isPart = CONTAINER_PARTIAL_MESSAGE === 'true' || _LINE_BREAK === 'line-max';
  return { wrapper: 'journald', stream, text: journaldText(MESSAGE), isPart };
}

/** An array of bytes if the text is not UTF-8; null if it is long and `--all` was not given. */
function journaldText(message: unknown): string | null {
  if (typeof message === 'string') return message;
  if (!Array.isArray(message) || !message.every((byte) => typeof byte === 'number')) return null;
  return Buffer.from(message).toString();
}
