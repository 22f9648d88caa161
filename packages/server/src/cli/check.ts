/** `serve --check`: finds what would keep the service from starting, all at once, and changes nothing. */
import { X509Certificate } from 'node:crypto';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { dirname, resolve } from 'node:path';
import { type ListenAddress, SERVICE_OPTIONS, STORE_OPTIONS } from '../config.ts';
import { TOKEN_REFUSAL_HEADER } from '../errors.ts';
import type { TokenRefusal } from '../identity/authenticator.ts';
import { WrongMasterKey } from '../identity/errors.ts';
import { inspectLmdbIdentity } from '../identity/lmdb-identity.ts';
import { deriveKey, masterKeyFingerprint } from '../identity/secrets.ts';
import { createTokens } from '../identity/tokens.ts';
import { FreeSpace, tightenModes } from '../lmdb/files.ts';
import { inspectStatistics } from '../store/lmdb/schema.ts';
import { closing, type Io, printText, UserError, userMessage, warn } from './command.ts';
import {
  checkFile,
  checkNoStatistics,
  checkNotForeign,
  checkStatisticsFile,
  type FileSettings,
  fileExists,
  identityFile,
  isInitialised,
  MASTER_KEY_VARIABLE,
  masterKey,
  masterKeyFile,
  statisticsFile,
  wrongStatisticsFile,
} from './data-directory.ts';
import {
  describePostgres,
  IDENTITY_PASSWORD_VARIABLE,
  masterKeyIn,
  POSTGRES_PASSWORD_VARIABLE,
  remoteIdentity,
  withConnection,
} from './installation.ts';
import { certificateOf, checkCanListen, metricsWarning } from './listeners.ts';
import { openGeoIp } from './open-geoip.ts';
import { flagOf, type Source, type Values } from './options.ts';

type ServiceValues = Values<typeof SERVICE_OPTIONS>;
type ServiceSource = Source<typeof SERVICE_OPTIONS>;

/** `notes` are worth knowing, but do not keep the service from starting. */
interface Findings {
  problems: string[];
  notes: string[];
}

const PROBE_MS_MAX = 2_000;
const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;

/** Prints all problems, and resolves to the exit status. */
export async function checkService(values: ServiceValues, source: ServiceSource, io: Io): Promise<number> {
  const { problems, notes } = await inspectService(values, source, io);
  for (const problem of problems) warn(io, problem, 'red');
  for (const note of notes) printText(io.stdout, `note: ${note}`);
  if (problems.length > 0) return 1;
  printText(io.stdout, 'no problems found');
  return 0;
}

/** Skips checks that depend on an invalid option. */
export async function inspectService(
  values: Partial<ServiceValues>,
  source: ServiceSource,
  io: Io,
): Promise<Findings> {
  const findings: Findings = { problems: [], notes: [] };
  const isValid = (names: readonly string[]) =>
    names.every((name) => {
      const key = name as keyof ServiceValues;
      const isGiven = source(key) !== undefined || 'default' in SERVICE_OPTIONS[key];
      return !isGiven || values[key] !== undefined;
    });
  const attempt = async (action: () => void | Promise<void>) => {
    try {
      await action();
    } catch (error) {
      for (const each of error instanceof AggregateError ? error.errors : [error])
        findings.problems.push(await messageOf(each));
    }
  };
  await attempt(() => checkCertificate(values, io, findings));
  await attempt(async () => void (await openGeoIp(values.geoip)));
  const isRemote = source('identityUrl') !== undefined;
  await checkListeners(values, isRemote, io, findings, attempt);
  await attempt(() => checkPasswordFile(values));
  findings.notes.push(...unknownVariables(io));
  if (isRemote && isValid(Object.keys(SERVICE_OPTIONS).filter((name) => name.startsWith('identity'))))
    await attempt(() => checkRemoteIdentity(values as ServiceValues, io));
  // A missing URL is reported as a conflict of options.
  const { store, data, postgresUrl } = values;
  const isComplete = store === 'lmdb' || postgresUrl !== undefined;
  if (store !== undefined && isComplete && isValid([...Object.keys(STORE_OPTIONS), 'data'])) {
    const complete = values as ServiceValues;
    if (data !== undefined && (!isRemote || store === 'lmdb'))
      await checkDirectory(data, values, { isRemote, isEmbedded: store === 'lmdb' }, io, findings, attempt);
    if (store === 'postgres') await attempt(() => checkPostgres(complete, isRemote, io, findings));
  }
  return findings;
}

type Attempt = (action: () => void | Promise<void>) => Promise<void>;

async function messageOf(error: unknown): Promise<string> {
  // A check reports what it finds; a defect still gets its stack trace when the service starts.
  return (await userMessage(error)) ?? (error as Error).message;
}

function checkCertificate(values: Partial<ServiceValues>, { now }: Io, { notes }: Findings): void {
  const { tlsCert, tlsKey } = values;
  if (tlsCert === undefined || tlsKey === undefined) return;
  const certificate = certificateOf({ tlsCert, tlsKey });
  if ((statSync(tlsKey).mode & 0o004) !== 0)
    notes.push(`--tls-key ${tlsKey} can be read by every user: run 'chmod o-r ${tlsKey}'`);
  if (certificate === null) return;
  const { validFrom, validTo } = new X509Certificate(certificate.read().cert);
  if (now() < Date.parse(validFrom))
    throw new UserError(`--tls-cert ${tlsCert} is not valid before ${validFrom}`);
  const left = Date.parse(validTo) - now();
  if (left <= 0) throw new UserError(`--tls-cert ${tlsCert} expired on ${validTo}: renew it`);
  if (left < EXPIRES_SOON_MS) notes.push(`--tls-cert ${tlsCert} expires on ${validTo}`);
}

/** Checks all options that are addresses, whatever their names. */
async function checkListeners(
  values: Partial<ServiceValues>,
  isRemote: boolean,
  io: Io,
  { notes }: Findings,
  attempt: Attempt,
): Promise<void> {
  const listeners = Object.entries(values)
    .filter((entry): entry is [string, ListenAddress] => isListenAddress(entry[1]))
    .map(([name, address]) => ({ flag: flagOf(SERVICE_OPTIONS[name as keyof ServiceValues]), address }));
  const warning = values.metricsListen ? metricsWarning(values.metricsListen) : null;
  if (warning !== null) notes.push(`--metrics-listen: ${warning}`);
  let isRunning = false;
  for (const { flag, address } of listeners) {
    await attempt(async () => {
      try {
        await checkCanListen(flag, address);
      } catch (error) {
        isRunning ||= flag === '--listen' && (await isServiceToReplace(values, address, isRemote, io));
        if (!isRunning) throw error;
        const where = `on ${address.host}:${address.port}`;
        notes.push(
          isRemote
            ? `${flag}: a wafstat is running ${where}: stop it before you start this service`
            : `${flag}: the service of this installation is running ${where}`,
        );
      }
    });
  }
}

function isListenAddress(value: unknown): value is ListenAddress {
  return typeof value === 'object' && value !== null && 'host' in value && 'port' in value;
}

/** Whether the new service will replace the one that listens there. With a remote identity, that may be any wafstat. */
async function isServiceToReplace(
  values: Partial<ServiceValues>,
  address: ListenAddress,
  isRemote: boolean,
  io: Io,
): Promise<boolean> {
  const secure = values.tlsCert !== undefined;
  if (isRemote) return (await responseOf(address, secure, '/healthz')).body.startsWith('{"status":"ok"}');
  // Other checks report what is wrong with the key.
  const key = await installedMasterKey(values, io).catch(() => null);
  if (key === null) return false;
  // Only a service with the same key recognizes the token as its own. It is expired, so that it is of no use to others.
  const { text } = createTokens(deriveKey(key, 'tokens')).issue(
    { id: 'check', token_epoch: 0 },
    { domain_id: 'check' },
    0,
  );
  const { headers } = await responseOf(address, secure, '/v3/auth/catalog', { 'X-Auth-Token': text });
  const expired: TokenRefusal = 'expired';
  return headers[TOKEN_REFUSAL_HEADER.toLowerCase()] === expired;
}

async function installedMasterKey(values: Partial<ServiceValues>, io: Io): Promise<Buffer | null> {
  if (values.data !== undefined) return isInitialised(values.data) ? masterKey(values.data, io) : null;
  const location = values as ServiceValues;
  const { storedMasterKey } = await import('../identity/postgres-identity.ts');
  return withConnection(location, io.env, async (database) =>
    masterKeyIn(await storedMasterKey(database), location, io),
  );
}

/** The headers and the beginning of the body; empty without a response. */
function responseOf(
  { host, port }: ListenAddress,
  secure: boolean,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ headers: IncomingHttpHeaders; body: string }> {
  const options = {
    host: host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host,
    port,
    path,
    headers,
  };
  return new Promise((done) => {
    const sent = (secure ? httpsRequest : httpRequest)(
      // The certificate may be for another name.
      { ...options, timeout: PROBE_MS_MAX, ...(secure && { rejectUnauthorized: false }) },
      (response) => {
        response.setEncoding('utf8').once('data', (text: string) => {
          done({ headers: response.headers, body: text });
          sent.destroy();
        });
        response.once('end', () => done({ headers: response.headers, body: '' }));
      },
    );
    sent.on('timeout', () => sent.destroy()).on('error', () => done({ headers: {}, body: '' }));
    sent.end();
  });
}

/** Only the first start needs it. Whether there was one is not known here if the installation is in PostgreSQL. */
function checkPasswordFile({ initialPasswordFile: path, data }: Partial<ServiceValues>): void {
  if (path === undefined || data === undefined || isInitialised(data)) return;
  checkWritable(dirname(resolve(path)));
  if (existsSync(path))
    throw new UserError(`--initial-password-file ${path} already exists: delete it, or choose another name`);
}

async function checkRemoteIdentity(values: ServiceValues, io: Io): Promise<void> {
  const remote = remoteIdentity(values, io);
  if (remote !== null) await closing(remote, () => remote.check());
}

async function checkDirectory(
  directory: string,
  settings: FileSettings,
  { isRemote, isEmbedded }: { isRemote: boolean; isEmbedded: boolean },
  io: Io,
  { notes }: Findings,
  attempt: Attempt,
): Promise<void> {
  let isUsable = false;
  await attempt(() => {
    checkWritable(directory);
    checkNotForeign(directory, settings);
    isUsable = true;
  });
  if (!isUsable) return;
  if (!fileExists(directory))
    return void notes.push(`${directory} does not exist: the first start creates it`);
  await attempt(() => void notes.push(...tightenModes(directory, { dryRun: true })));
  await attempt(() => new FreeSpace(directory).check());
  let knownId: number | undefined;
  if (!isRemote && !fileExists(identityFile(directory))) {
    notes.push(`${directory} has no installation: the first start creates it`);
    await attempt(() => checkNoStatistics(directory));
    // The first start will use an existing key, so it must be valid.
    if (existsSync(masterKeyFile(directory))) await attempt(() => void masterKey(directory, io));
    return;
  }
  if (!isRemote) {
    let given: string | undefined;
    await attempt(() => {
      given = masterKeyFingerprint(masterKey(directory, io));
    });
    await attempt(async () => {
      const file = identityFile(directory);
      checkOpenable(file);
      checkFile(file);
      const { versionProblem, fingerprint, statisticsFileId } = await inspectLmdbIdentity(file);
      if (versionProblem !== null) throw new UserError(versionProblem);
      if (typeof statisticsFileId === 'number') knownId = statisticsFileId;
      if (fingerprint !== undefined && given !== undefined && fingerprint !== given)
        throw new WrongMasterKey(`${file} was created with another master key: provide that key`);
    });
  }
  if (!isEmbedded) return;
  await attempt(async () => {
    const file = statisticsFile(directory);
    checkStatisticsFile(file, knownId);
    if (!fileExists(file) || statSync(file).size === 0) return;
    checkOpenable(file);
    const id = await inspectStatistics(file);
    if (knownId !== undefined && id !== undefined && id !== knownId) throw wrongStatisticsFile(directory);
  });
}

/** LMDB writes into the lock file even to read. */
function checkOpenable(file: string): void {
  for (const path of [file, `${file}-lock`])
    if (fileExists(path)) accessSync(path, constants.R_OK | constants.W_OK);
}

/** Checks the directory, or the one in which it would be created. */
function checkWritable(path: string): void {
  let directory = resolve(path);
  while (!fileExists(directory)) directory = dirname(directory);
  const stats = statSync(directory);
  const { uid, mode } = stats;
  if (!stats.isDirectory()) throw new UserError(`${directory} is a file: use a directory`);
  accessSync(directory, constants.R_OK | constants.W_OK | constants.X_OK);
  // Root may write everywhere, but then the files belong to root. /tmp has the sticky bit.
  if (process.getuid?.() === 0 && uid !== 0 && (mode & 0o1000) === 0) {
    throw new UserError(
      `${directory} belongs to the user ID ${uid}, but this command runs as root: run it as the user that runs the server`,
    );
  }
}

/** Variables that are probably misspelled, or that only client commands use. */
function unknownVariables({ env }: Io): string[] {
  const known = new Set<string>([
    ...Object.values(SERVICE_OPTIONS).map((option) => option.env),
    ...[MASTER_KEY_VARIABLE, POSTGRES_PASSWORD_VARIABLE, IDENTITY_PASSWORD_VARIABLE],
  ]);
  return Object.keys(env)
    .filter((name) => name.startsWith('WAFSTAT_') && !known.has(name))
    .map((name) => `the variable ${name} is not a setting of the service`);
}

/** Checks users and projects, too, if they are in PostgreSQL. */
async function checkPostgres(
  values: ServiceValues,
  isRemote: boolean,
  io: Io,
  { notes }: Findings,
): Promise<void> {
  const { inspectTables } = await import('../store/postgres/schema.ts');
  const { storedMasterKey } = await import('../identity/postgres-identity.ts');
  const hasIdentity = values.data === undefined && !isRemote;
  await withConnection(values, io.env, async (database) => {
    const exists = await inspectTables(database, values.postgresMigrate === 'auto');
    if (!exists)
      notes.push(`${describePostgres(values)} has no tables of this version: the next start creates them`);
    if (!exists || !hasIdentity) return;
    const stored = await storedMasterKey(database);
    if (stored === null) {
      notes.push(`${describePostgres(values)} has no installation: the first start creates it`);
    } else if (masterKeyFingerprint(masterKeyIn(stored, values, io)) !== stored.fingerprint) {
      throw new WrongMasterKey(
        `the installation in ${describePostgres(values)} was created with another master key: provide that key`,
      );
    }
  });
}
