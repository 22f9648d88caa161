import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Outcome } from '../ingest/batch-reader.ts';
import type { Io } from './command.ts';
import { IngestSummary, tooOldAdvice } from './ingest-summary.ts';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 10, 16);
const day = (days: number) => NOW - days * DAY_MS;
const iso = (days: number) => new Date(day(days)).toISOString();
const limits = { retentionMs: 180 * DAY_MS };
const span = (first: number, last: number) => ({ first: day(first), last: day(last) });

test('records before the limit of --retention, in a store that no server has pruned', () => {
  expect(tooOldAdvice(limits, span(300, 200), NOW)).toBe(
    `They are before ${iso(180)}, the limit of --retention; the oldest is from ${iso(300)}. ` +
      'To count them, in this order: start the server with --retention 301d or longer; ' +
      'run this command with --retention 301d and another --source.',
  );
});

test('records before the limit of --retention and before the horizon', () => {
  expect(tooOldAdvice({ ...limits, horizon: day(181) }, span(300, 200), NOW)).toBe(
    `They are before ${iso(180)}, the limit of --retention; the oldest is from ${iso(300)}. ` +
      'To count them, in this order: start the server with --retention 301d or longer; ' +
      `move the horizon back with 'wafstat horizon --set ${iso(300)}' and the same --data or --store; ` +
      'run this command with --retention 301d and another --source.',
  );
});

test('records whose statistics are deleted cannot be counted', () => {
  const pruned = { ...limits, horizon: day(100), freedBefore: day(101) };
  expect(tooOldAdvice(pruned, span(170, 110), NOW)).toBe(
    `They are before ${iso(100)}, the horizon of this store; the oldest is from ${iso(170)}. ` +
      'They cannot be counted, because this store has deleted the statistics of that time.',
  );
  expect(tooOldAdvice(pruned, span(170, 100.5), NOW)).toBe(
    `They are before ${iso(100)}, the horizon of this store; the oldest is from ${iso(170)}. ` +
      `Those before ${iso(101)} cannot be counted, because this store has deleted the statistics of that time. ` +
      'To count the others, in this order: start the server with --retention 102d or longer; ' +
      `move the horizon back with 'wafstat horizon --set ${iso(101)}' and the same --data or --store; run this command with another --source.`,
  );
});

test('without a plausible time there are no figures', () => {
  const advice =
    'To count them, in this order: start the server with a longer --retention; ' +
    "move the horizon back with 'wafstat horizon --set TIME' and the same --data or --store; " +
    'run this command with the same --retention and another --source.';
  const horizon = day(100);
  expect(tooOldAdvice({ ...limits, horizon }, { first: 1_794_707_397, last: day(120) }, NOW)).toContain(
    advice,
  );
  expect(tooOldAdvice({ ...limits, horizon }, undefined, NOW)).toBe(
    `They are before ${iso(100)}, the horizon of this store. ${advice}`,
  );
});

test.each([
  [null, false],
  ['access.log', true],
  ['standard input, part 2', true],
])('an incomplete last line of %s: the remedy for files is %s', (file, isShown) => {
  const printed = errorsOf((summary) => summary.add(file, { kind: 'unfinished', bytes: 7, line: 3 }));
  expect(printed).toContain(`${file ?? 'standard input'}, line 3: incomplete, left for the next run\n`);
  expect(printed.includes("'wafstat ingest - < FILE'")).toBe(isShown);
});

test.each([
  [{ unknown_format: 2 }, true],
  [{ unknown_format: 1, too_old: 1 }, true],
  [{ too_old: 1, not_an_attack: 1 }, false],
])('if %o are dropped, the advice to check the format is shown: %s', (dropped, isShown) => {
  const printed = errorsOf((summary) => summary.addOutcome('f', outcomeOf(dropped)));
  expect(printed.includes('No line was counted.')).toBe(isShown);
});

function outcomeOf(dropped: Outcome['dropped']): Outcome {
  return {
    accepted: 0,
    dropped,
    first_drops: [],
    formats: {},
    requests: 0,
    attacks: {},
    without_id: 0,
    without_host: 0,
    unregistered_host: 0,
  };
}

/** What a summary prints on standard error. */
function errorsOf(add: (summary: IngestSummary) => void): string {
  const stderr = new PassThrough();
  const io: Io = {
    stdin: new PassThrough(),
    stdout: new PassThrough(),
    stderr,
    env: {},
    now: () => NOW,
    stop: new AbortController().signal,
  };
  const summary = new IngestSummary(io, limits);
  add(summary);
  summary.print();
  return String(stderr.read() ?? '');
}
