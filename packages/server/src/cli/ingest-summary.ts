/** What became of the lines of a run: counted as they go, printed at the end. */
import { DROP_REASONS } from '../event.ts';
import type { FileProgress } from '../ingest/file.ts';
import { type Drop, FIRST_DROPS_MAX, type Outcome } from '../ingest/pipeline.ts';
import { type Io, printLine } from './command.ts';

export class IngestSummary {
  readonly #io: Io;
  readonly #started: number;
  #accepted = 0;
  #seen = 0;
  #lines = 0;
  #withoutHost = 0;
  #dropped = new Map<string, number>();
  #formats = new Map<string, number>();
  #attacks = new Map<string, number>();
  #firstDrops: (Drop & { file: string })[] = [];
  #unfinished: string[] = [];

  constructor(io: Io) {
    this.#io = io;
    this.#started = io.now();
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

  addOutcome(
    file: string,
    { accepted, dropped, first_drops, formats, attacks, without_host }: Outcome,
  ): void {
    this.#accepted += accepted;
    this.#withoutHost += without_host;
    addAll(this.#dropped, dropped);
    addAll(this.#formats, formats);
    addAll(this.#attacks, attacks);
    this.#firstDrops.push(...first_drops.map((drop) => ({ ...drop, file })));
    this.#firstDrops.length = Math.min(this.#firstDrops.length, FIRST_DROPS_MAX);
  }

  print(): void {
    const { stdout, stderr, now } = this.#io;
    for (const { file, line, reason, text } of this.#firstDrops) {
      printLine(stderr, `${file}, line ${line}: ${DROP_REASONS[reason]}: ${visible(text)}`);
    }
    for (const place of this.#unfinished) printLine(stderr, `${place}: unfinished, left for the next run`);
    const seconds = Math.max(now() - this.#started, 1) / 1_000;
    const row = (name: string, n: number, remark = '') =>
      printLine(stdout, `${name.padEnd(20)} ${n}${remark}`);
    const rows = (counts: ReadonlyMap<string, number>) => {
      for (const [name, n] of counts) row(`  ${name}`, n);
    };
    row('accepted', this.#accepted);
    rows(this.#formats);
    if (this.#withoutHost > 0) {
      row('  of no known host', this.#withoutHost, ' (they count in the total of the project only)');
    }
    row('attacks', sum(this.#attacks));
    rows(this.#attacks);
    row('dropped', sum(this.#dropped));
    rows(this.#dropped);
    if (this.#seen > 0) row('counted before', this.#seen);
    // Unknown to a follower, which counts as lines come.
    if (this.#lines > 0) row('lines per second', Math.round(this.#lines / seconds));
  }
}

/** A log line is attacker input: nothing in it may act on the terminal. */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\ufffd');
}

function addAll(to: Map<string, number>, counts: Readonly<Record<string, number>>): void {
  for (const [name, n] of Object.entries(counts)) to.set(name, (to.get(name) ?? 0) + n);
}

function sum(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((total, n) => total + n, 0);
}
