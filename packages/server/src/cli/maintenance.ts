/** Checks and repairs of the statistics: `verify`, `repair` and `horizon`. */
import { openAuditFile } from '../audit/audit-file.ts';
import { newAuditEntry } from '../audit/audit-trail.ts';
import { DIRECTORY, LOCATION_OPTIONS } from '../config.ts';
import { IDENTITY_TABLES, identityProblems, repairIdentity } from '../identity/lmdb-identity.ts';
import { isReadable } from '../lmdb/pages.ts';
import { type RepairReport, repairStatistics } from '../store/lmdb/repair.ts';
import { type Finding, type VerifyReport, verifyStatistics, walkPages } from '../store/lmdb/verify.ts';
import { iso } from '../store/retention.ts';
import { command, type Io, printLine, UserError, warn } from './command.ts';
import {
  acceptStatistics,
  fileExists,
  identityFile,
  isInitialised,
  localActor,
  requireDirectory,
  statisticsFile,
} from './data-directory.ts';
import { withAuditTrail, withStore } from './installation.ts';
import { flag, JSON_OUTPUT, option, timestamp } from './options.ts';

export const verifyCommand = command({
  options: { data: DIRECTORY, json: JSON_OUTPUT },
  async run({ json, ...given }, _operands, io) {
    const data = requireDirectory(given.data, io);
    const report = await verifyDirectory(data, io);
    if (json) printLine(io.stdout, JSON.stringify(report));
    else printReport(io, report);
    return report.problems === 0 ? 0 : 1;
  },
});

export const repairCommand = command({
  options: {
    data: DIRECTORY,
    acceptStatistics: option(
      '--accept-statistics',
      'accept the current statistics file (or start a new one) as that of this data directory',
      flag,
    ),
    json: JSON_OUTPUT,
  },
  async run({ acceptStatistics: accept = false, json, ...given }, _operands, io) {
    const data = requireDirectory(given.data, io);
    const file = statisticsFile(data);
    if (!fileExists(file) && !accept) {
      throw new UserError(
        `${file} is missing: restore it from a backup, or use --accept-statistics to continue without it`,
      );
    }
    const after = { accept_statistics: accept };
    const entry = newAuditEntry(localActor(), 'statistics.repair', { type: 'statistics' }, { after });
    await openAuditFile(data, io.now).append(entry);
    const identity = await repairIdentityOf(data, io);
    if (accept) await acceptStatistics(data, io);
    const repaired = mergeRepairs(identity, await repairStatistics(file, progressOn(io)));
    if (accept && isInitialised(data)) await acceptStatistics(data, io);
    const verified = await verifyDirectory(data, io);
    if (json) {
      printLine(io.stdout, JSON.stringify({ ...repaired, verified }));
    } else {
      printFindings(io, 'repaired: ', repaired.repairs, repaired.repaired);
      printFindings(io, 'lost: ', repaired.lost);
      printReport(io, verified);
    }
    return repaired.lost.length === 0 && verified.problems === 0 ? 0 : 1;
  },
});

/** Repairs the identity, if the directory has one. */
async function repairIdentityOf(data: string, io: Io): Promise<Pick<RepairReport, 'repairs' | 'lost'>> {
  if (!isInitialised(data)) return { repairs: [], lost: [] };
  const file = identityFile(data);
  const pages = (await walkPages(file, IDENTITY_TABLES)).problems.filter((problem) => !isReadable(problem));
  const { repairs, lost } =
    pages.length > 0
      ? {
          repairs: [],
          lost: pages.map((one) => ({ ...one, problem: `${one.problem}: restore the file from a backup` })),
        }
      : await repairIdentity(file);
  if (repairs.length + lost.length > 0) {
    const after = { lost: lost.map(({ table, key }) => `${table} ${key}`) };
    const entry = newAuditEntry(localActor(), 'identity.repair', { type: 'installation' }, { after });
    await openAuditFile(data, io.now).append(entry);
  }
  return { repairs: repairs.map(inIdentity), lost: lost.map(inIdentity) };
}

function inIdentity<T extends { table: string }>(finding: T): T {
  return { ...finding, table: `${finding.table} of identity.mdb` };
}

function mergeRepairs(
  identity: Pick<RepairReport, 'repairs' | 'lost'>,
  statistics: RepairReport,
): RepairReport {
  return {
    repaired: identity.repairs.length + statistics.repaired,
    repairs: [...identity.repairs, ...statistics.repairs],
    lost: [...identity.lost, ...statistics.lost],
  };
}

export const horizonCommand = command({
  examples: ['wafstat horizon --data ./data --set 2026-01-01T00:00:00Z'],
  options: {
    ...LOCATION_OPTIONS,
    set: option('--set <time>', 'move the horizon back to this time', timestamp),
    json: JSON_OUTPUT,
  },
  async run({ set, json, ...location }, _operands, io) {
    const { data } = location;
    if (location.store === 'lmdb' && data !== undefined && !fileExists(statisticsFile(data))) {
      throw new UserError(`${data} has no statistics: check --data`);
    }
    return withStore(data ?? null, io, location, async (store) => {
      if (set !== undefined) {
        const { horizon } = await store.retention();
        const values = { before: { horizon }, after: { horizon: set } };
        const entry = newAuditEntry(localActor(), 'horizon.set', { type: 'statistics' }, values);
        await withAuditTrail(location, io, (trail) => trail.append(entry));
        await store.restoreHorizon(set);
      }
      const { horizon, freedBefore } = await store.retention();
      if (json) {
        printLine(io.stdout, JSON.stringify({ horizon, freed_before: freedBefore }));
        return 0;
      }
      if (set !== undefined && horizon < set) warn(io, 'the horizon is already earlier; nothing was changed');
      printLine(io.stdout, `events count from        ${iso(horizon)}`);
      printLine(io.stdout, `can be set back to       ${iso(freedBefore)}`);
      if (set === undefined || horizon <= set) return 0;
      warn(io, 'earlier events have been deleted, so the horizon stays there');
      return 1;
    });
  },
});

/** Checks the statistics and the identity. */
export async function verifyDirectory(data: string, io: Io): Promise<VerifyReport> {
  const file = statisticsFile(data);
  if (!fileExists(file) && !isInitialised(data))
    throw new UserError(`${data} is not a wafstat data directory`);
  const report = fileExists(file)
    ? await verifyStatistics(file, progressOn(io))
    : { pages: 0, records: 0, problems: 0, findings: [] };
  if (!isInitialised(data)) return report;
  const pages = (await walkPages(identityFile(data), IDENTITY_TABLES)).problems;
  // LMDB trusts its pages: reading damaged ones could end the process.
  const identity = pages.length > 0 ? pages : await identityProblems(identityFile(data));
  const findings = identity.map(inIdentity);
  return {
    ...report,
    problems: report.problems + identity.length,
    findings: [...report.findings, ...findings],
  };
}

export function describeFinding({ table, key, problem, project, host, from, to }: Finding): string {
  const place = [
    table === '' ? '' : `table ${table}`,
    key,
    project === undefined ? '' : `project ${project}`,
    host === undefined ? '' : `host ${host}`,
    from === undefined || to === undefined ? '' : `${iso(from)} to ${iso(to)}`,
  ];
  return `${place.filter(Boolean).join(', ')}: ${problem}`;
}

/** Shows progress on a terminal only; each step overwrites the last. */
function progressOn({ stderr }: Io): (step: string) => void {
  return (step) => {
    if (stderr.isTTY) stderr.write(`\r\u001b[Kchecking: ${step}\r`);
  };
}

function printReport(io: Io, report: VerifyReport): void {
  if (io.stderr.isTTY) io.stderr.write('\r\u001b[K');
  printFindings(io, '', report.findings, report.problems);
  const result = report.problems === 0 ? 'ok' : `${report.problems} problems`;
  printLine(io.stdout, `${result}: ${report.records} records on ${report.pages} pages checked`);
}

function printFindings({ stdout }: Io, prefix: string, findings: readonly Finding[], total = 0): void {
  for (const finding of findings) printLine(stdout, `${prefix}${describeFinding(finding)}`);
  if (total > findings.length) printLine(stdout, `and ${total - findings.length} more`);
}
