/** What `ingest` and `follow` share: their options, and how they read and count logs. */
import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Privacy } from '../attack-details.ts';
import { COUNTING_OPTIONS, LOCATION_OPTIONS } from '../config.ts';
import type { GeoIp } from '../geoip.ts';
import { FIRST_BYTES, isErrorLog, type ReadLimits } from '../ingest/batch-reader.ts';
import { ByteReader, openLog } from '../ingest/byte-stream.ts';
import type { FileIngest } from '../ingest/file.ts';
import { Pipeline } from '../ingest/pipeline.ts';
import { isSourceName } from '../printable.ts';
import type { Store } from '../store/store.ts';
import type { Io } from './command.ts';
import { oneOf, option, PROJECT, required, type Values } from './options.ts';
import { READER_OPTIONS, readerOptions } from './reader-options.ts';

export const LOG_OPTIONS = {
  ...LOCATION_OPTIONS,
  project: required(PROJECT),
  source: option('--source <name>', 'name of the log source', sourceName, { default: 'default' }),
  ...READER_OPTIONS,
  hosts: option(
    '--hosts <auto|registered>',
    'auto: register unknown hosts; registered: count their events in the project total only',
    oneOf('auto', 'registered'),
    { default: 'auto' },
  ),
  ...COUNTING_OPTIONS,
};

function sourceName(value: string): string {
  if (!isSourceName(value)) throw new Error('must be 1 to 128 characters, none of them invisible');
  return value;
}

export const CORRECT_CLOCK = 'correct the clock of this machine, or that of the machine that wrote the log';
/** The pause after the store or a file was unavailable. */
export const RETRY_MS = 2_000;

export const pauseFor = (ms: number, io: Io) => sleep(ms, undefined, { signal: io.stop }).catch(() => {});

/** `project` is an ID here. */
export function logSource(
  store: Store,
  values: Values<Omit<typeof LOG_OPTIONS, keyof typeof LOCATION_OPTIONS>>,
  read: ReadLimits,
  io: Io,
  geo: GeoIp | undefined,
): { ingest: FileIngest; pipeline: Pipeline } {
  const { project, source, format, hosts, hostsMax, sourcesMax } = values;
  const limits = {
    ...read,
    hostsMax: hosts === 'registered' ? 0 : hostsMax,
    sourcesMax,
    geo,
  };
  return {
    ingest: { project, source: { name: source, format }, reader: readerOptions(values) },
    pipeline: new Pipeline(store, limits, io.now),
  };
}

export function readLimits({
  retention,
  attackSources,
  attackQueries,
  attackValues,
}: Pick<Values<typeof LOG_OPTIONS>, 'retention' | keyof Privacy>): ReadLimits {
  return { retentionMs: retention, attackSources, attackQueries, attackValues };
}

/** By its first lines. A log that cannot be read is reported later. */
export async function startsLikeErrorLog(file: string): Promise<boolean> {
  const stats = file === '-' ? null : await stat(file).catch(() => null);
  // A pipe cannot be read twice.
  if (!stats?.isFile()) return false;
  const bytes = new ByteReader(openLog(file));
  try {
    return isErrorLog(await bytes.peek(FIRST_BYTES));
  } catch {
    return false;
  } finally {
    await bytes.close();
  }
}

/** In a function, because the compiler does not know that callbacks set the variable. */
export function throwFailure(failure: { error: unknown } | null): void {
  if (failure !== null) throw failure.error;
}
