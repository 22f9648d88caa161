/** Counts what became of the lines of a run, and prints it at the end. */
import { CATEGORIES, DROP_FIXES, DROP_REASONS } from '../event.ts';
import {
  type Drop,
  FIRST_DROPS_MAX,
  type Outcome,
  type ReadLimits,
  spanWith,
  type TimeSpan,
} from '../ingest/batch-reader.ts';
import type { FileProgress } from '../ingest/file.ts';
import { LOG_KINDS } from '../ingest/formats/format.ts';
import { iso } from '../store/retention.ts';
import { type Io, printLine, printText } from './command.ts';

/** How messages name it. */
export const STANDARD_INPUT = 'standard input';

interface SummaryLimits extends ReadLimits {
  /** The horizon cannot move back beyond this. */
  freedBefore?: number | undefined;
}

export class IngestSummary {
  readonly #io: Io;
  readonly #limits: SummaryLimits;
  readonly #startedAt: number;
  #accepted = 0;
  #seen = 0;
  #lines = 0;
  #requests = 0;
  #withoutHost = 0;
  #unregisteredHost = 0;
  readonly #warnOfIds: (outcome: Outcome) => void;
  #idWarning: string | null = null;
  #dropped = new Map<string, number>();
  #formats = new Map<string, number>();
  readonly #attacks = attackCounts();
  #firstDrops: (Drop & { file: string })[] = [];
  #oldTimes: TimeSpan | undefined;
  #unfinished: string[] = [];
  #hasUnfinishedFile = false;

  constructor(io: Io, limits: SummaryLimits) {
    this.#io = io;
    this.#limits = limits;
    this.#startedAt = io.now();
    this.#warnOfIds = idWarning((message) => {
      this.#idWarning = message;
    });
  }

  /** `file` is null for standard input. */
  add(file: string | null, progress: FileProgress): void {
    const name = file ?? STANDARD_INPUT;
    if (progress.kind === 'unfinished') {
      this.#unfinished.push(`${name}, line ${progress.line}`);
      this.#hasUnfinishedFile ||= file !== null;
      return;
    }
    this.#lines += progress.lines;
    if (progress.kind === 'seen') this.#seen += progress.lines;
    else this.addOutcome(name, progress.outcome);
  }

  addOutcome(file: string, outcome: Outcome): void {
    const { accepted, dropped, first_drops, old_times, formats, attacks } = outcome;
    this.#accepted += accepted;
    this.#requests += outcome.requests;
    this.#withoutHost += outcome.without_host;
    this.#unregisteredHost += outcome.unregistered_host;
    addAll(this.#dropped, dropped);
    addAll(this.#formats, formats);
    addAll(this.#attacks, attacks);
    this.#warnOfIds(outcome);
    if (old_times !== undefined)
      this.#oldTimes = spanWith(spanWith(this.#oldTimes, old_times.first), old_times.last);
    this.#firstDrops.push(...first_drops.map((drop) => ({ ...drop, file })));
    this.#firstDrops.length = Math.min(this.#firstDrops.length, FIRST_DROPS_MAX);
  }

  print(): void {
    const { stdout, stderr, now } = this.#io;
    for (const { file, line, reason, text } of this.#firstDrops) {
      const place = line === 0 ? file : `${file}, line ${line}`;
      printText(stderr, `${place}: ${DROP_REASONS[reason]}${text === '' ? '' : `: ${text}`}`);
    }
    for (const place of this.#unfinished) printText(stderr, `${place}: incomplete, left for the next run`);
    if (this.#hasUnfinishedFile) printText(stderr, IF_COMPLETE);
    const seconds = Math.max(now() - this.#startedAt, 1) / 1_000;
    const { row, section } = summaryTable(stdout);
    section('accepted', this.#formats, this.#accepted);
    this.#printWithoutHost(row);
    row('requests', this.#requests);
    section('attacks', this.#attacks);
    section('dropped', this.#dropped);
    if (this.#seen > 0) row('read before', this.#seen);
    // A follower does not know how many lines it has read.
    if (this.#lines > 0) row('lines per second', Math.round(this.#lines / seconds));
    if (this.#idWarning !== null) printText(stderr, this.#idWarning);
    this.#printWrongTimes();
    this.#printWhyNothing();
  }

  /** Not shown by `explain`, which does not know the store. */
  #printWrongTimes(): void {
    const { stderr, now } = this.#io;
    const tooOld = this.#dropped.get('too_old') ?? 0;
    if (tooOld > 0)
      printText(stderr, `Records too old: ${tooOld}. ${tooOldAdvice(this.#limits, this.#oldTimes, now())}`);
    const inFuture = this.#dropped.get('in_future') ?? 0;
    if (inFuture > 0) printText(stderr, `Records in the future: ${inFuture}. ${DROP_FIXES.in_future}`);
  }

  #printWhyNothing(): void {
    if (this.#accepted > 0) return;
    if ([...this.#dropped.keys()].some((reason) => !READ_CORRECTLY.includes(reason))) {
      printText(
        this.#io.stderr,
        "No line was counted. 'wafstat explain FILE' shows why; --pattern describes a custom log format.",
      );
    } else if (this.#dropped.size === 0 && this.#seen > 0) {
      printText(
        this.#io.stderr,
        'All lines were read before. Each line is read once per source, even if it was dropped: ' +
          'to read them with other options, use another --source.',
      );
    }
  }

  #printWithoutHost(row: (name: string, n: number) => void): void {
    if (this.#withoutHost === 0) return;
    const unnamed = this.#withoutHost - this.#unregisteredHost;
    row('without a host', this.#withoutHost);
    if (unnamed > 0) {
      row('  not named', unnamed);
      printText(this.#io.stderr, `${unnamed} ${NO_HOST}`);
    }
    if (this.#unregisteredHost > 0) {
      row('  not registered', this.#unregisteredHost);
      printText(this.#io.stderr, `${this.#unregisteredHost} ${UNREGISTERED_HOST}`);
    }
  }
}

/** Reasons for dropping lines whose format is known: other options of the reader would not help. */
const READ_CORRECTLY: readonly string[] = ['too_old', 'in_future', 'not_an_attack'];

/** Earlier times are mistakes, such as seconds instead of milliseconds. */
const PLAUSIBLE_SINCE = Date.UTC(2000, 0);

/** Why records are too old, and all that is needed to count them, in the order in which it works. */
export function tooOldAdvice(
  { retentionMs, horizon = 0, freedBefore = 0 }: SummaryLimits,
  times: TimeSpan | undefined,
  now: number,
): string {
  const oldest = now - retentionMs;
  const limit =
    horizon > oldest
      ? `${iso(horizon)}, the horizon of this store`
      : `${iso(oldest)}, the limit of --retention`;
  const sentences = [
    `They are before ${limit}${times === undefined ? '' : `; the oldest is from ${iso(times.first)}`}.`,
  ];
  const last = times?.last ?? Math.max(horizon, oldest);
  if (last < freedBefore) {
    sentences.push('They cannot be counted, because this store has deleted the statistics of that time.');
    return sentences.join(' ');
  }
  const isPartlyDeleted = times !== undefined && times.first < freedBefore;
  if (isPartlyDeleted)
    sentences.push(
      `Those before ${iso(freedBefore)} cannot be counted, because this store has deleted the statistics of that time.`,
    );
  const from = Math.max(times?.first ?? 0, freedBefore);
  const isKnown = from >= PLAUSIBLE_SINCE;
  const retention = isKnown ? `--retention ${Math.ceil((now - from) / DAY_MS) + 1}d` : 'a longer --retention';
  // A server with a shorter retention would move the horizon forward again.
  const steps = [`start the server with ${retention}${isKnown ? ' or longer' : ''}`];
  if (horizon > from)
    steps.push(
      `move the horizon back with 'wafstat horizon --set ${isKnown ? iso(from) : 'TIME'}' and the same --data or --store`,
    );
  steps.push(
    from < oldest
      ? `run this command with ${isKnown ? retention : 'the same --retention'} and another --source`
      : 'run this command with another --source',
  );
  sentences.push(`To count ${isPartlyDeleted ? 'the others' : 'them'}, in this order: ${steps.join('; ')}.`);
  return sentences.join(' ');
}

const DAY_MS = 86_400_000;

/** Prints the rows of a summary: a name and a number, or a total with the counts that it consists of. */
export function summaryTable(stdout: Io['stdout']) {
  const row = (name: string, n: number) => printLine(stdout, `${name.padEnd(20)} ${n}`);
  const section = (title: string, counts: ReadonlyMap<string, number>, total = sum(counts)) => {
    row(title, total);
    for (const [name, n] of counts) if (n > 0) row(`  ${name}`, n);
  };
  return { row, section };
}

/** In the order of the table of categories. */
export function attackCounts(): Map<string, number> {
  return new Map(CATEGORIES.map((name) => [name, 0]));
}

/** What to do about a last line without a line end. */
const IF_COMPLETE =
  "If a file will not grow, and only its last line end is missing, run 'wafstat ingest - < FILE' with the same options.";

/** What to do about events without a host. */
export const NAME_THE_HOST =
  'Name the host in the log (nginx: log_format with $host, Apache: %v), or pass --host NAME.';

const ONLY_IN_TOTAL = "so they count in the project's total only";
const NO_HOST = `records have no host, ${ONLY_IN_TOTAL}. ${NAME_THE_HOST}`;
const UNREGISTERED_HOST =
  `records have a host that is not registered, ${ONLY_IN_TOTAL}. ` +
  "Register it with 'wafstat host add', or raise --hosts-max if the project is at that limit.";

/** Warns once if an audit log and an error log are read, and one of them has attacks without a request ID. */
export function idWarning(warn: (message: string) => void): (outcome: Outcome) => void {
  const logs = new Set<string>();
  let withoutId = 0;
  let isWarned = false;
  return (outcome) => {
    for (const format of Object.keys(outcome.formats)) {
      const log = LOG_KINDS[format];
      if (log !== undefined) logs.add(log);
    }
    withoutId += outcome.without_id;
    if (isWarned || withoutId === 0 || logs.size < 2) return;
    isWarned = true;
    warn(
      'Some attacks in the audit log or the error log have no request ID, because the line was cut: they count twice if both logs ' +
        'report them. See docs/log-formats.md#one-request-in-several-logs',
    );
  };
}

/** Warns of records without a host once for each cause: a follower may run for months. */
export function hostWarnings(warn: (message: string) => void): (outcome: Outcome) => void {
  const warned = new Set<string>();
  const warnOnce = (message: string) => {
    if (warned.has(message)) return;
    warned.add(message);
    warn(message);
  };
  return ({ without_host, unregistered_host }) => {
    if (without_host > unregistered_host) warnOnce(NO_HOST);
    if (unregistered_host > 0) warnOnce(UNREGISTERED_HOST);
  };
}

function addAll(to: Map<string, number>, counts: Readonly<Record<string, number>>): void {
  for (const [name, n] of Object.entries(counts)) addCount(to, name, n);
}

export function addCount(to: Map<string, number>, name: string, n: number): void {
  to.set(name, (to.get(name) ?? 0) + n);
}

function sum(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((total, n) => total + n, 0);
}
