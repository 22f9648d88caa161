import { DROP_REASONS } from '../event.ts';
import { ByteReader, decompress, openLog } from '../ingest/byte-stream.ts';
import type { Classification } from '../ingest/categories/classify.ts';
import { nextChunk } from '../ingest/file.ts';
import type { LineRange, LogRecord, Parsed } from '../ingest/formats/format.ts';
import { countLineEnds, endsInsideLine, LINE_BYTES_MAX, type Line, lineText } from '../ingest/lines.ts';
import { createReader } from '../ingest/reader.ts';
import { printable } from '../printable.ts';
import { command, type Io, printLine, readProblem, UserError } from './command.ts';
import { JSON_OUTPUT } from './options.ts';
import { patternProblems, READER_OPTIONS, readerOptions } from './reader-options.ts';

export const explainCommand = command({
  name: 'explain [file]',
  description: 'show how log lines are counted, and why; reads a file or standard input; stores nothing',
  examples: [
    'wafstat explain /var/log/nginx/modsec_audit.log',
    `wafstat explain access.log --pattern '$host $remote_addr [$time_iso8601] "$request" $status'`,
  ],
  options: { ...READER_OPTIONS, json: JSON_OUTPUT },
  check: patternProblems,
  async run({ json, ...values }, [file = '-'], io) {
    const reader = createReader({ ...readerOptions(values), explain: true });
    const printer = json ? jsonPrinter(io) : textPrinter(io);
    try {
      for await (const { number, text } of linesOf(file === '-' ? decompress(io.stdin) : openLog(file))) {
        const parsed = text === null ? [TOO_LONG] : reader.read(text, io.now(), number);
        for (const each of parsed) printer.print(number, each);
        if (io.stop.aborted) break;
      }
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === undefined) throw error;
      throw new UserError(readProblem(file, code));
    }
    for (const each of reader.flush()) printer.print(null, each);
    printer.end();
    return 0;
  },
});

const TOO_LONG: Parsed = { kind: 'dropped', reason: 'line_too_long', format: 'none' };

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

interface Printer {
  /** `line` is null for records that were complete only at the end of the log. */
  print(line: number | null, parsed: Parsed): void;
  end(): void;
}

function textPrinter({ stdout }: Io): Printer {
  return {
    print(line, parsed) {
      printLine(stdout, `${lineNumbers(line, parsed.lines)}: ${summary(parsed)}`);
      if (parsed.kind === 'record') {
        const { time, host, hostId } = parsed.record;
        printLine(stdout, `  time  ${isoTime(time)}`);
        printLine(stdout, `  host  ${[host, hostId].filter(Boolean).join(', ') || 'none'}`);
      }
      const { fields = [] } = parsed;
      const width = Math.max(...fields.map(([name]) => name.length));
      for (const [name, value] of fields) printLine(stdout, `  ${name.padEnd(width)}  ${value}`);
      if (parsed.hint !== undefined) printLine(stdout, `  ${parsed.hint}`);
      if (parsed.kind === 'dropped') printLine(stdout, `  see   ${DROPS_PAGE}#${parsed.reason}`);
      for (const judgement of evidenceOf(parsed)) printLine(stdout, `  rule  ${describeRule(judgement)}`);
      if (parsed.kind !== 'record') return;
      const { decision, details: { rule, ...details } = {}, attack } = parsed.record;
      if (decision !== undefined) printLine(stdout, `  why   ${decision.reason} (step: ${decision.step})`);
      if (attack === null) return;
      if (rule !== undefined) printLine(stdout, `  decided by rule ${rule}`);
      for (const [name, value] of Object.entries(details)) {
        const text = typeof value === 'boolean' ? (value ? 'yes' : 'no') : value;
        printLine(stdout, `  ${name.padEnd('blocked'.length)}  ${text}`);
      }
    },
    end() {},
  };
}

/** The lines of the record, which may be long before the line that completed it. */
function lineNumbers(line: number | null, lines: LineRange | undefined): string {
  const [first, last] = lines ?? [line, line];
  if (first === null) return 'end of log';
  return first === last ? `line ${first}` : `lines ${first}-${last}`;
}

const DROPS_PAGE = 'docs/log-formats.md';

/** A log may contain times that Date cannot represent. */
function isoTime(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? `${time} ms` : date.toISOString();
}

function summary(parsed: Parsed): string {
  const wrapper = parsed.wrapper === undefined ? '' : `, wrapped in ${parsed.wrapper}`;
  const format = parsed.format === 'none' ? '' : `; format ${parsed.format}${wrapper}`;
  if (parsed.kind === 'dropped')
    return `not counted (${parsed.reason}): ${DROP_REASONS[parsed.reason]}${format}`;
  const { request, attack, count } = parsed.record;
  const counted = [request ? 'a request' : '', attack === null ? '' : `an attack (${attack})`];
  const times = count === 1 ? '' : `, ${count} times`;
  return `counted as ${counted.filter(Boolean).join(' and ')}${times}${format}`;
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

/** One array, written record by record. */
function jsonPrinter({ stdout }: Io): Printer {
  let separator = '[';
  return {
    print(line, parsed) {
      const evidence = evidenceOf(parsed);
      const result =
        parsed.kind === 'record'
          ? recordFields(parsed.record)
          : { dropped: parsed.reason, see: `${DROPS_PAGE}#${parsed.reason}` };
      const { format, wrapper, hint, fields, lines } = parsed;
      const printed = { line, lines, format, wrapper, ...result, evidence, hint, fields };
      stdout.write(`${separator}${printable(JSON.stringify(printed))}`);
      separator = ',\n';
    },
    end() {
      printLine(stdout, separator === '[' ? '[]' : ']');
    },
  };
}

/** The fields of the `events` format, and how the category was chosen. */
function recordFields({ hostId, details, evidence: _, decision, ...record }: LogRecord): object {
  return { ...record, host_id: hostId, ...details, decision };
}
