/** What both queries have in common: the question, the call, and the form of the answer. */
import type { Client } from '@wafstat/client';
import type { Origin, SettingName, Settings } from '../../config.ts';
import { type Io, printLine } from '../command.ts';
import { RANGE_SETTINGS, type Range, rangeOf, rangeProblems } from './range.ts';
import { callService } from './service.ts';
import { connectionOf, SIGN_IN_SETTINGS, signInProblems } from './sign-in.ts';
import { type Terminal, terminalOf } from './terminal.ts';

export const QUERY_SETTINGS = [
  ...SIGN_IN_SETTINGS,
  ...RANGE_SETTINGS,
  'hostIds',
  'output',
] as const satisfies readonly SettingName[];

export interface Query extends Range {
  hosts: string[] | undefined;
  signal: AbortSignal;
}

/** `json` is not among them: that is the answer as it came. */
export interface Forms<T> {
  plot(answer: T, range: Range, terminal: Terminal): string[];
  table(answer: T): string[];
  csv(answer: T): string;
}

export function queryProblems(origin: Origin, io: Io): string[] {
  return [...signInProblems(origin, io), ...rangeProblems(origin)];
}

export async function runQuery<T>(
  settings: Settings<(typeof QUERY_SETTINGS)[number]>,
  origin: Origin,
  io: Io,
  call: (client: Client, query: Query) => Promise<T>,
  forms: Forms<T>,
): Promise<number> {
  const { stdout, stop } = io;
  const connection = await connectionOf(settings, origin, io);
  const range = rangeOf(settings, origin, io.now());
  const query = { ...range, hosts: settings.hostIds, signal: stop };
  const answer = await callService(connection, io, (client) => call(client, query));
  switch (settings.output ?? (stdout.isTTY ? 'plot' : 'table')) {
    case 'json':
      stdout.write(answer.body);
      // On a terminal the next prompt would stand in the same line; anywhere else every byte counts.
      if (stdout.isTTY) stdout.write('\n');
      break;
    case 'csv':
      stdout.write(forms.csv(answer.result));
      break;
    case 'table':
      for (const line of forms.table(answer.result)) printLine(stdout, line);
      break;
    case 'plot':
      // Not escaped, because of the colours: a plot has numbers and our own words only.
      for (const line of forms.plot(answer.result, range, terminalOf(io))) stdout.write(`${line}\n`);
  }
  return 0;
}
