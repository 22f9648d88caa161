import { SERVER_OPTIONS } from '../config.ts';
import { DROP_REASONS, type DropReason, normalHostname } from '../event.ts';
import { BatchReader } from '../ingest/batch-reader.ts';
import { ByteReader, decompress, openLog, ProgramMissing } from '../ingest/byte-stream.ts';
import type { Classification } from '../ingest/categories/classify.ts';
import { CompressedInput } from '../ingest/compression.ts';
import { nextChunk } from '../ingest/file.ts';
import { eventFields } from '../ingest/formats/events.ts';
import type { LineRange, LogRecord, Parsed } from '../ingest/formats/format.ts';
import { countLineEnds, endsInsideLine, LINE_BYTES_MAX, type Line, lineText } from '../ingest/lines.ts';
import { createReader } from '../ingest/reader.ts';
import { printable } from '../printable.ts';
import { FlaggedRequests, NO_REQUESTS, type SourceRequests } from '../store/flagged-requests.ts';
import { iso } from '../store/retention.ts';
import { command, type Io, openStdin, printLine, printText, readProblem, UserError } from './command.ts';
import { addCount, attackCounts, summaryTable } from './ingest-summary.ts';
import { JSON_OUTPUT } from './options.ts';
import { patternProblems, READER_OPTIONS, readerOptions } from './reader-options.ts';

export const explainCommand = command({
  examples: [
    'wafstat explain /var/log/nginx/modsec_audit.log',
    `wafstat explain access.log --pattern '$host $remote_addr [$time_iso8601] "$request" $status'`,
  ],
  options: { ...READER_OPTIONS, json: JSON_OUTPUT },
  check: patternProblems,
  async run({ json, ...values }, [file = '-'], io) {
    const reader = createReader({ ...readerOptions(values), explain: true });
    const printer = inOrder(json ? jsonPrinter(io) : textPrinter(io));
    const requests = rememberedRequests();
    const limits = new BatchReader({ retentionMs: RETENTION_MS }, io.now);
    const print = (line: number | null, parsed: Parsed) => {
      const untimely = parsed.kind === 'record' ? limits.timeReason(parsed.record.time, io.now()) : null;
      printer.print(line, untimely ? { ...parsed, untimely } : withoutSameRequest(parsed, requests));
    };
    let lines = 0;
    try {
      const stream = file === '-' ? decompress(openStdin(io)) : openLog(file);
      for await (const { number, text } of linesOf(stream)) {
        for (const each of reader.read(text, io.now(), number)) print(number, each);
        printer.release(reader.firstPendingLine);
        lines = number;
        if (io.stop.aborted) break;
      }
    } catch (error) {
      if (error instanceof CompressedInput)
        throw new UserError(error.remedy(file === '-' ? null : file, 'explain'));
      const { code, message } = error as NodeJS.ErrnoException;
      if (error instanceof ProgramMissing) throw new UserError(`cannot read ${file}: ${message}`);
      if (code === undefined) throw error;
      // A stop closes standard input. What was read before is summed up.
      if (!io.stop.aborted) throw new UserError(readProblem(file, code));
    }
    for (const each of reader.flush()) print(null, each);
    printer.end(lines);
    return 0;
  },
});

const { retention } = SERVER_OPTIONS;
const RETENTION_MS = retention.parse(retention.default);

/** Bounds the memory. A store remembers more of them, across the logs of a source. */
const REQUESTS_MAX = 100_000;

/** The requests of a source that nobody stores. */
export function rememberedRequests(): SourceRequests {
  return new FlaggedRequests(NO_REQUESTS, Number.POSITIVE_INFINITY, () => undefined).of('');
}

/** What a store would make of a record. */
export function withoutSameRequest(parsed: Parsed, requests: SourceRequests): Parsed {
  if (parsed.kind === 'dropped') return parsed;
  const record = requests.count(parsed.record);
  for (const key of requests.changes.keys()) {
    if (requests.changes.size <= REQUESTS_MAX) break;
    requests.changes.delete(key);
  }
  if (record === null) return { ...parsed, kind: 'dropped', reason: 'same_request' };
  return record === parsed.record ? parsed : { ...parsed, record };
}

async function* linesOf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Line> {
  const bytes = new ByteReader(stream);
  let number = 1;
  let insideLine = false;
  for (;;) {
    const seen = await bytes.peek(LINE_BYTES_MAX);
    if (seen.length === 0 && bytes.failure) throw bytes.failure;
    if (seen.length === 0) return;
    const chunk = nextChunk(seen, insideLine, number);
    for (const line of chunk.lines) yield line;
    if (chunk.bytes.length === 0) {
      // The last line has no line end.
      yield { number, text: lineText(seen, 0, seen.length) };
      return;
    }
    number += countLineEnds(chunk.bytes);
    insideLine = endsInsideLine(chunk.bytes, insideLine);
    bytes.take(chunk.bytes.length);
  }
}

/** `untimely`: why the record does not count, although it can be read. */
type Explained = Parsed & { untimely?: 'too_old' | 'in_future' };

interface Printer {
  /** `line` is null for records that were complete only at the end of the log. */
  print(line: number | null, parsed: Explained): void;
  end(lines: number): void;
}

/** Bounds the memory: a record that waits for more lines does not hold back more results than this. */
const HELD_MAX = 1_000;

/** Prints results in the order of their first lines. */
function inOrder(printer: Printer): Printer & { release(before: number): void } {
  let held: { line: number | null; parsed: Explained }[] = [];
  const firstLine = ({ line, parsed }: (typeof held)[number]) =>
    parsed.lines?.[0] ?? line ?? Number.POSITIVE_INFINITY;
  /** Prints the results before this line, and those beyond the limit. */
  const release = (before: number) => {
    held.sort((one, other) => firstLine(one) - firstLine(other) || 0);
    const later = held.findIndex((result) => firstLine(result) >= before);
    const count = later === -1 ? held.length : Math.max(later, held.length - HELD_MAX);
    for (const { line, parsed } of held.slice(0, count)) printer.print(line, parsed);
    held = held.slice(count);
  };
  return {
    print: (line, parsed) => void held.push({ line, parsed }),
    release,
    end(lines) {
      release(Number.POSITIVE_INFINITY);
      for (const { line, parsed } of held) printer.print(line, parsed);
      printer.end(lines);
    },
  };
}

/** The same problem is printed this often in full. */
const REPEATS_MAX = 3;
/** Bounds the memory for problems that quote their line, and so all differ. */
const PROBLEMS_MAX = 1_000;

/** Ends with a summary like that of `ingest`. */
function textPrinter({ stdout }: Io): Printer {
  /** How often each problem was printed. */
  const problems = new Map<string, number>();
  /** Lines with a known problem, which are printed as one. */
  let repeats: { problem: string; text: string; lines: LineRange } | null = null;
  const formats = new Map<string, number>();
  const attacks = attackCounts();
  const dropped = new Map<string, number>();
  let requests = 0;

  function addToSummary(parsed: Explained): void {
    const reason = dropReason(parsed);
    if (reason !== null) addCount(dropped, reason, 1);
    if (reason !== null || parsed.kind === 'dropped') return;
    addCount(formats, parsed.format, 1);
    const { request, attack, count } = parsed.record;
    if (request) requests += count;
    if (attack !== null) addCount(attacks, attack, count);
  }

  /** Whether the problem was printed often enough. */
  function isRepeat(problem: string): boolean {
    const times = problems.get(problem) ?? 0;
    if (times === REPEATS_MAX) return true;
    if (times > 0 || problems.size < PROBLEMS_MAX) problems.set(problem, times + 1);
    return false;
  }

  function printRepeats(): void {
    if (repeats !== null) printText(stdout, `${lineNumbers(null, repeats.lines)}: ${repeats.text}`);
    repeats = null;
  }

  return {
    print(line, parsed) {
      addToSummary(parsed);
      const { lines = line === null ? undefined : ([line, line] as const) } = parsed;
      const first = summary(parsed);
      const details = detailLines(parsed);
      const reason = dropReason(parsed);
      // Records at a wrong time differ, but have the same problem.
      const problem = parsed.kind === 'dropped' ? [first, ...details].join('\n') : (reason ?? '');
      if (reason !== null && lines !== undefined && isRepeat(problem)) {
        // A line between them may be part of a record that is printed later.
        const isNext = repeats?.problem === problem && [0, 1].includes(lines[0] - repeats.lines[1]);
        if (!isNext) printRepeats();
        const text = `not counted (${reason}), as above`;
        repeats = { problem, text, lines: [repeats?.lines[0] ?? lines[0], lines[1]] };
        return;
      }
      printRepeats();
      printText(stdout, `${lineNumbers(line, parsed.lines)}: ${first}`);
      for (const detail of details) printText(stdout, `  ${detail}`);
    },
    end(lines) {
      printRepeats();
      printLine(stdout, '');
      const { row, section } = summaryTable(stdout);
      row('lines', lines);
      section('accepted', formats);
      row('requests', requests);
      section('attacks', attacks);
      section('dropped', dropped);
      const old = dropped.get('too_old') ?? 0;
      if (old > 0)
        printText(
          stdout,
          `Records older than ${RETENTION_MS / DAY_MS} days, the default of --retention: ${old}. ` +
            'To count them, use a longer --retention for ingest and for the server.',
        );
    },
  };
}

/** Null for a record that counts. */
function dropReason(parsed: Explained): DropReason | null {
  return parsed.kind === 'dropped' ? parsed.reason : (parsed.untimely ?? null);
}

function detailLines(parsed: Explained): string[] {
  const lines: string[] = [];
  if (parsed.kind === 'record') {
    const { time, host, hostId } = parsed.record;
    lines.push(`time  ${iso(time)}`);
    const isInvalid = host !== undefined && normalHostname(host) === null;
    const hosts = [storedHost(host), hostId].filter(Boolean).join(', ') || 'none';
    lines.push(`host  ${hosts}${isInvalid ? ' (not a host name, ignored)' : ''}`);
  }
  const { fields = [] } = parsed;
  const width = Math.max(...fields.map(([name]) => name.length));
  for (const [name, value] of fields) lines.push(`${name.padEnd(width)}  ${value}`);
  if (parsed.hint !== undefined) lines.push(parsed.hint);
  const reason = dropReason(parsed);
  if (reason !== null) lines.push(`see   ${DROPS_PAGE}#${reason}`);
  for (const judgement of evidenceOf(parsed)) lines.push(`rule  ${describeRule(judgement)}`);
  if (parsed.kind !== 'record') return lines;
  const { decision, details = {}, attack } = parsed.record;
  const { rule, rules = [], ...fieldsOfAttack } = eventFields(details);
  if (decision !== undefined) lines.push(`why   ${decision.reason} (step: ${decision.step})`);
  if (attack === null) return lines;
  if (rule !== undefined) lines.push(`decided by rule ${rule}`);
  for (const { id, variable, value } of rules) {
    const parts = [id, variable, value].filter((part) => part !== undefined);
    if (parts.length > 1) lines.push(`matched     ${parts.join('  ')}`);
  }
  for (const [name, value] of Object.entries(fieldsOfAttack)) {
    const text = typeof value === 'boolean' ? (value ? 'yes' : 'no') : value;
    lines.push(`${name.padEnd('user_agent'.length)}  ${text}`);
  }
  return lines;
}

/** The lines of the record, which may be long before the line that completed it. */
function lineNumbers(line: number | null, lines: LineRange | undefined): string {
  const [first, last] = lines ?? [line, line];
  if (first === null) return 'end of log';
  return first === last ? `line ${first}` : `lines ${first}-${last}`;
}

const DAY_MS = 86_400_000;

const DROPS_PAGE = 'docs/log-formats.md';

function summary(parsed: Explained): string {
  const wrapper = parsed.wrapper === undefined ? '' : `, wrapped in ${parsed.wrapper}`;
  const format = parsed.format === 'none' ? '' : `; format ${parsed.format}${wrapper}`;
  if (parsed.kind === 'dropped')
    return `not counted (${parsed.reason}): ${DROP_REASONS[parsed.reason]}${format}`;
  const { request, attack, count } = parsed.record;
  const counted = [request ? 'a request' : '', attack === null ? '' : `an attack (${attack})`];
  const times = count === 1 ? '' : `, ${count} times`;
  const what = `${counted.filter(Boolean).join(' and ')}${times}${format}`;
  const { untimely } = parsed;
  return untimely === undefined
    ? `counted as ${what}`
    : `not counted (${untimely}): ${DROP_REASONS[untimely]}; otherwise ${what}`;
}

function describeRule({ rule, points, category, because, level, verdict, denied }: Classification): string {
  const parts = [
    category ?? (verdict ? 'verdict' : 'none'),
    category === null ? '' : `${points} points`,
    level === undefined ? '' : `paranoia level ${level}`,
    denied ? 'denied the request' : '',
    because,
  ];
  return `${rule || '-'}: ${parts.filter(Boolean).join(', ')}`;
}

function evidenceOf(parsed: Parsed): readonly Classification[] {
  return (parsed.kind === 'record' ? parsed.record.evidence : parsed.evidence) ?? [];
}

/** One array, written record by record. It has no summary: all its elements are records. */
function jsonPrinter({ stdout }: Io): Printer {
  let separator = '[';
  return {
    print(line, parsed) {
      const evidence = evidenceOf(parsed);
      const reason = dropReason(parsed);
      const drop = reason === null ? {} : { dropped: reason, see: `${DROPS_PAGE}#${reason}` };
      const record = parsed.kind === 'record' ? recordFields(parsed.record) : {};
      const { format, wrapper, hint, fields, lines } = parsed;
      const printed = { line, lines, format, wrapper, ...drop, ...record, evidence, hint, fields };
      stdout.write(`${separator}${printable(JSON.stringify(printed))}`);
      separator = ',\n';
    },
    end() {
      printLine(stdout, separator === '[' ? '[]' : ']');
    },
  };
}

/** The fields of the `events` format, and how the category was chosen. */
function recordFields({ host, hostId, details, evidence: _, decision, ...record }: LogRecord): object {
  return { ...record, host: storedHost(host), host_id: hostId, ...eventFields(details ?? {}), decision };
}

/** In lower case and without the port; unchanged if it is not a host name. */
function storedHost(host: string | undefined): string | undefined {
  return host === undefined ? undefined : (normalHostname(host) ?? host);
}
