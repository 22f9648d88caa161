import { existsSync } from 'node:fs';
import { type Finding, type VerifyReport, verifyStatistics, walkPages } from '../store/lmdb/verify.ts';
import { command, type Io, printLine, UserError } from './command.ts';
import { identityFile, isInitialised, statisticsFile } from './data-folder.ts';

export const verifyCommand = command({
  name: 'verify',
  about:
    'check the data folder: checksums, counters of all levels against each other, references between tables; ' +
    'works while the server runs; exit status 1 when something is wrong',
  settings: ['data', 'json'],
  required: ['data'],
  async run({ data, json }, _operands, io) {
    const report = await verifyFolder(data, io);
    if (json) printLine(io.stdout, JSON.stringify(report));
    else printReport(io, report);
    return report.problems === 0 ? 0 : 1;
  },
});

/** The statistics as a whole, and the pages of the identity file. */
export async function verifyFolder(data: string, io: Io): Promise<VerifyReport> {
  const file = statisticsFile(data);
  if (!existsSync(file) && !isInitialised(data)) throw new UserError(`${data} is not a wafstat data folder`);
  const report = existsSync(file)
    ? await verifyStatistics(file, progressOn(io))
    : { pages: 0, records: 0, without_checksum: 0, problems: 0, findings: [] };
  if (!isInitialised(data)) return report;
  const identity = (await walkPages(identityFile(data))).problems;
  return {
    ...report,
    problems: report.problems + identity.length,
    findings: [
      ...report.findings,
      ...identity.map(({ table, page, problem }) => ({
        table: `${table} of identity.mdb`,
        key: `page ${page}`,
        problem,
      })),
    ],
  };
}

/** On a terminal only, and each step over the one before. */
export function progressOn({ stderr }: Io): (step: string) => void {
  return (step) => {
    if (stderr.isTTY) stderr.write(`\r\u001b[Kchecking: ${step}\r`);
  };
}

export function printReport(io: Io, report: VerifyReport): void {
  if (io.stderr.isTTY) io.stderr.write('\r\u001b[K');
  for (const finding of report.findings) printLine(io.stdout, sentenceOf(finding));
  const more = report.problems - report.findings.length;
  if (more > 0) printLine(io.stdout, `and ${more} more`);
  if (report.without_checksum > 0) {
    printLine(
      io.stdout,
      `${report.without_checksum} records were written without checksums by an earlier release; 'wafstat repair' adds them`,
    );
  }
  printLine(
    io.stdout,
    `${report.problems === 0 ? 'ok' : `${report.problems} problems`}: ${report.records} records on ${report.pages} pages checked`,
  );
}

export function sentenceOf({ table, key, problem, project, host, from, to }: Finding): string {
  const place = [
    table === '' ? '' : `table ${table}`,
    key,
    project === undefined ? '' : `project ${project}`,
    host === undefined ? '' : `host ${host}`,
    from === undefined || to === undefined ? '' : `${iso(from)} to ${iso(to)}`,
  ];
  return `${place.filter(Boolean).join(', ')}: ${problem}`;
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
