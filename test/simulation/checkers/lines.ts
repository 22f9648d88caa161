/** Every line that was written is counted exactly once, or reported; those of older files first. */
import type { Line } from '../ledger.ts';
import { type Checked, type Checker, CheckFailed } from './checker.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Warnings that lines were not counted. */
const REPORT = /may be lost|cannot be read|is skipped: it is older/;

export function checkLines({ scheduler, ledger, warnings, horizon, isOrderly, now }: Checked): Checker {
  /** Lines that are neither events nor in time. `again`: those that may be reported a second time. */
  const malformed = new Map<string, { written: number; gone: number; dropped: number; again: number }>();
  /** Those that may still be in a file. */
  let kept: Line[] = [];
  /** Batches that have reported some, until the store forgets them: soon, if the clock was behind. */
  let reports: { source: string; at: number; until: number; dropped: number }[] = [];
  const of = (source: string) => {
    const counts = malformed.get(source) ?? { written: 0, gone: 0, dropped: 0, again: 0 };
    malformed.set(source, counts);
    return counts;
  };

  /** Files that were rotated an hour ago, and waited for `follow`, are read oldest first. */
  function checkOrder({ source, file }: Line): void {
    if (isReported(source)) return;
    for (const line of ledger.open) {
      const isOlder = line.source === source && line.file < file && line.writtenAt < scheduler.now - HOUR_MS;
      if (isOlder && line.expected === 'counted' && line.copies > 0 && !line.isCounted)
        throw new CheckFailed(
          `file ${file} of ${source} is counted before line ${line.number} of file ${line.file}`,
        );
    }
  }

  const isReported = (source: string) => warnings.get(source)?.some((text) => REPORT.test(text)) ?? false;

  function settle(line: Line): void {
    const { number, source, time, expected, isCounted, copies } = line;
    const name = `line ${number} of ${source} (${new Date(time).toISOString()})`;
    if (expected === 'dropped') {
      of(source).written++;
      if (copies === 0) of(source).gone++;
    }
    if (expected !== 'counted' || isCounted || time < horizon().horizon) return;
    if (copies > 0 && !isReported(source)) throw new CheckFailed(`${name} was not counted`);
    if (!isReported(source)) throw new CheckFailed(`${name} is lost, and no warning says so`);
  }

  return {
    appended({ source, events, dropped }) {
      const first = ledger.find(events[0]?.time ?? 0);
      if (first && isOrderly()) checkOrder(first);
      for (const { time } of events) {
        if (time < horizon().horizon) continue;
        const line = ledger.find(time);
        if (line === undefined || line.source !== source.name)
          throw new CheckFailed(`an event of ${source.name} at ${time} was never written`);
        if (line.isCounted) throw new CheckFailed(`line ${line.number} of ${source.name} is counted twice`);
        line.isCounted = true;
      }
      const until = events.reduce((newest, { time }) => Math.max(newest, time), now());
      for (const [reason, records] of Object.entries(dropped)) {
        if (reason === 'too_old' || reason === 'in_future') continue;
        of(source.name).dropped += records;
        reports.push({ source: source.name, at: scheduler.now, until, dropped: records });
      }
    },

    retained({ freedBefore }) {
      const isForgotten = ({ until }: { until: number }) =>
        Math.floor(until / DAY_MS) < Math.floor(freedBefore / DAY_MS);
      const lines = [...kept, ...ledger.open].filter(
        ({ expected, copies }) => expected === 'dropped' && copies > 0,
      );
      for (const { source, at, dropped } of reports.filter(isForgotten)) {
        const left = lines.filter((line) => line.source === source && line.writtenAt <= at);
        of(source).again += Math.min(dropped, left.length);
      }
      reports = reports.filter((report) => !isForgotten(report));
    },

    async settled() {
      for (const line of ledger.open) settle(line);
      for (const [source, counts] of malformed) {
        const { written, gone, dropped, again } = counts;
        if (dropped > written + again)
          throw new CheckFailed(`${dropped} of ${written} bad lines of ${source} are reported`);
        if (isReported(source)) counts.gone = Math.max(gone, written - dropped);
        else if (dropped < written - gone)
          throw new CheckFailed(`only ${dropped} of ${written - gone} bad lines of ${source} are reported`);
      }
      kept = [...kept, ...ledger.open].filter(({ expected, copies }) => expected === 'dropped' && copies > 0);
      ledger.open.clear();
    },
  };
}
