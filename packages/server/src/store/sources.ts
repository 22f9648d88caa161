/** The records of log sources, which all stores update in the same way, so that they report the same. */
import { countRecords, type Event } from '../event.ts';
import { type Batch, mergeFormats, NO_SOURCE, type ProjectSources, type Source } from './store.ts';

/** A source without events. */
export function newSource(id: string, { name, format }: Batch['source']): Omit<Source, 'hosts'> {
  const empty = { events: 0, without_host: 0, dropped: {}, examples: {}, first_seen: null, last_seen: null };
  return { id, name, format, ...empty };
}

/** The source after a batch was counted. */
export function updateSource<S extends Omit<Source, 'hosts'>>(
  source: S,
  batch: Batch,
  counted: readonly Event[],
  withoutHost: number,
  sameRequests = 0,
): S {
  const updated: S = {
    ...source,
    format: mergeFormats([source.format, batch.source.format]),
    dropped: { ...source.dropped },
    examples: batch.examples === null ? {} : { ...source.examples, ...batch.examples },
  };
  const drop = (reason: string, n: number) => {
    if (n > 0) updated.dropped[reason] = (updated.dropped[reason] ?? 0) + n;
  };
  for (const [reason, n] of Object.entries(batch.dropped)) drop(reason, n);
  const records = countRecords(counted);
  drop('same_request', sameRequests);
  drop('too_old', countRecords(batch.events) - records - sameRequests);
  updated.events += records;
  updated.without_host += withoutHost;
  if (counted.length === 0) return updated;
  let first = updated.first_seen ?? Number.POSITIVE_INFINITY;
  let last = updated.last_seen ?? Number.NEGATIVE_INFINITY;
  for (const { time } of counted) {
    if (time < first) first = time;
    if (time > last) last = time;
  }
  updated.first_seen = first;
  updated.last_seen = last;
  return updated;
}

/** The source without examples from before `before`; undefined if it has none. */
export function withoutOldExamples<S extends Pick<Source, 'examples'>>(
  source: S,
  before: number,
): S | undefined {
  const all = Object.entries(source.examples ?? {});
  const kept = all.filter(([, { time }]) => time >= before);
  return kept.length === all.length ? undefined : { ...source, examples: Object.fromEntries(kept) };
}

/** The result of `projects`, from all sources of all projects in any order. */
export function groupSources(
  records: Iterable<readonly [project: string, source: Omit<Source, 'hosts'>]>,
): ProjectSources[] {
  const projects = new Map<string, ProjectSources>();
  for (const [project, record] of records) {
    const known = projects.get(project) ?? { project, sources: [] };
    projects.set(project, known);
    if (record.name !== NO_SOURCE.name) known.sources.push({ ...newSource(record.id, record), ...record });
  }
  for (const { sources } of projects.values()) sources.sort((a, b) => (a.name < b.name ? -1 : 1));
  return [...projects.values()].sort((a, b) => (a.project < b.project ? -1 : 1));
}
