/** Counts what became of the lines of a run, and prints it at the end. */
import { CATEGORIES, DROP_FIXES, DROP_REASONS } from '../event.ts';
import { type Drop, FIRST_DROPS_MAX, type Outcome, type ReadLimits } from '../ingest/batch-reader.ts';
import type { FileProgress } from '../ingest/file.ts';
import { iso } from '../store/retention.ts';
import { type Io, printLine } from './command.ts';

export class IngestSummary {
  readonly #io: Io;
  readonly #limits: ReadLimits;
  readonly #startedAt: number;
  #accepted = 0;
  #seen = 0;
  #lines = 0;
  #requests = 0;
  #withoutHost = 0;
  #unregisteredHost = 0;
  #dropped = new Map<string, number>();
  #formats = new Map<string, number>();
  /** In the order of the table of categories. */
  readonly #attacks = new Map<string, number>(CATEGORIES.map((name) => [name, 0]));
  #firstDrops: (Drop & { file: string })[] = [];
  #unfinished: string[] = [];

  constructor(io: Io, limits: ReadLimits) {
    this.#io = io;
    this.#limits = limits;
    this.#startedAt = io.now();
  }

  add(file: string, progress: FileProgress): void {
    if (progress.kind === 'unfinished') {
      this.#unfinished.push(`${file}, line ${progress.line}`);
      return;
    }
    this.#lines += progress.lines;
    if (progress.kind === 'seen') this.#seen += progress.lines;
    else this.addOutcome(file, progress.outcome);
  }

  addOutcome(file: string, outcome: Outcome): void {
    const { accepted, dropped, first_drops, formats, attacks } = outcome;
    this.#accepted += accepted;
    this.#requests += outcome.requests;
    this.#withoutHost += outcome.without_host;
    this.#unregisteredHost += outcome.unregistered_host;
    addAll(this.#dropped, dropped);
    addAll(this.#formats, formats);
    addAll(this.#attacks, attacks);
    this.#firstDrops.push(...first_drops.map((drop) => ({ ...drop, file })));
    this.#firstDrops.length = Math.min(this.#firstDrops.length, FIRST_DROPS_MAX);
  }

  print(): void {
    const { stdout, stderr, now } = this.#io;
    for (const { file, line, reason, text } of this.#firstDrops) {
      const place = line === 0 ? file : `${file}, line ${line}`;
      printLine(stderr, `${place}: ${DROP_REASONS[reason]}${text === '' ? '' : `: ${text}`}`);
    }
    for (const place of this.#unfinished) printLine(stderr, `${place}: incomplete, left for the next run`);
    const seconds = Math.max(now() - this.#startedAt, 1) / 1_000;
    const row = (name: string, n: number) => printLine(stdout, `${name.padEnd(20)} ${n}`);
    const section = (title: string, counts: ReadonlyMap<string, number>, total = sum(counts)) => {
      row(title, total);
      for (const [name, n] of counts) if (n > 0) row(`  ${name}`, n);
    };
    section('accepted', this.#formats, this.#accepted);
    this.#printWithoutHost(row);
    row('requests', this.#requests);
    section('attacks', this.#attacks);
    section('dropped', this.#dropped);
    if (this.#seen > 0) row('read before', this.#seen);
    // A follower does not know how many lines it has read.
    if (this.#lines > 0) row('lines per second', Math.round(this.#lines / seconds));
    this.#printWrongTimes();
    this.#printWhyNothing();
  }

  /** Not shown by `explain`, which does not know the store. */
  #printWrongTimes(): void {
    const { stderr, now } = this.#io;
    const { retentionMs, horizon = 0 } = this.#limits;
    const tooOld = this.#dropped.get('too_old') ?? 0;
    const oldest = now() - retentionMs;
    if (tooOld > 0) {
      const why =
        horizon > oldest
          ? `before ${iso(horizon)}, the horizon of this store. To count them, raise --retention ` +
            "of the server, move the horizon back with 'wafstat horizon --set TIME',"
          : `before ${iso(oldest)}, the limit of --retention. To count them, raise --retention ` +
            'of this command and of the server,';
      printLine(stderr, `Records too old: ${tooOld}. They are ${why} and use another --source.`);
    }
    const inFuture = this.#dropped.get('in_future') ?? 0;
    if (inFuture > 0) printLine(stderr, `Records in the future: ${inFuture}. ${DROP_FIXES.in_future}`);
  }

  #printWhyNothing(): void {
    if (this.#accepted > 0) return;
    if ([...this.#dropped.keys()].some((reason) => reason !== 'too_old' && reason !== 'in_future')) {
      printLine(
        this.#io.stderr,
        "No line was counted. 'wafstat explain FILE' shows why; --pattern describes a custom log format.",
      );
    } else if (this.#dropped.size === 0 && this.#seen > 0) {
      printLine(
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
      printLine(this.#io.stderr, `${unnamed} ${NO_HOST}`);
    }
    if (this.#unregisteredHost > 0) {
      row('  not registered', this.#unregisteredHost);
      printLine(this.#io.stderr, `${this.#unregisteredHost} ${UNREGISTERED_HOST}`);
    }
  }
}

/** What to do about events without a host. */
export const NAME_THE_HOST =
  'Name the host in the log (nginx: log_format with $host, Apache: %v), or pass --host NAME.';

const ONLY_IN_TOTAL = "so they count in the project's total only";
const NO_HOST = `records have no host, ${ONLY_IN_TOTAL}. ${NAME_THE_HOST}`;
const UNREGISTERED_HOST =
  `records have a host that is not registered, ${ONLY_IN_TOTAL}. ` +
  "Register it with 'wafstat host add', or raise --hosts-max if the project is at that limit.";

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
  for (const [name, n] of Object.entries(counts)) to.set(name, (to.get(name) ?? 0) + n);
}

function sum(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((total, n) => total + n, 0);
}
