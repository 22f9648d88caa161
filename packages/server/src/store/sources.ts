/** The records of log sources, which all stores update in the same way, so that they report the same. */
import { countRecords } from '../event.ts';
import type { CountedBatch } from './decide.ts';
import { derivedId } from './ids.ts';
import { type Batch, mergeFormats, NO_SOURCE, type ProjectSources, type Source } from './store.ts';

/** A source without events. */
export function newSource(project: string, { name, format }: Batch['source']): Omit<Source, 'hosts'> {
  return {
    ...{ id: derivedId('source', project, name), name, format },
    ...{ events: 0, without_host: 0, dropped: {}, examples: {}, first_seen: null, last_seen: null },
    ...{ last_batch: null, usual_gap_ms: 0 },
  };
}

/** The source after a batch was counted. */
export function updateSource<S extends Omit<Source, 'hosts'>>(
  source: S,
  { batch, events, withoutHost, sameRecords, now }: CountedBatch,
): S {
  const updated: S = {
    ...source,
    format: mergeFormats([source.format, batch.source.format]),
    dropped: { ...source.dropped },
    examples: batch.examples === null ? {} : { ...source.examples, ...batch.examples },
    last_batch: Math.max(now, source.last_batch ?? now),
    usual_gap_ms: usualGap(source, now),
  };
  const drop = (reason: string, n: number) => {
    if (n > 0) updated.dropped[reason] = (updated.dropped[reason] ?? 0) + n;
  };
  for (const [reason, n] of Object.entries(batch.dropped)) drop(reason, n);
  const records = countRecords(events);
  drop('same_request', sameRecords);
  drop('too_old', countRecords(batch.events) - records - sameRecords);
  updated.events += records;
  updated.without_host += withoutHost;
  if (events.length === 0) return updated;
  let first = updated.first_seen ?? Number.POSITIVE_INFINITY;
  let last = updated.last_seen ?? Number.NEGATIVE_INFINITY;
  for (const { time } of events) {
    if (time < first) first = time;
    if (time > last) last = time;
  }
  updated.first_seen = first;
  updated.last_seen = last;
  return updated;
}

/** Pauses from longer ago than a few of these count little: a source may be read more often from now on. */
const GAP_MEMORY_MS = 86_400_000;

/** An average over time, so that one pause of a day outweighs a thousand of a second, but is forgotten after some days. */
function usualGap(
  { last_batch, usual_gap_ms }: Pick<Source, 'last_batch' | 'usual_gap_ms'>,
  now: number,
): number {
  const gapMs = Math.max(0, now - (last_batch ?? now));
  const weight = Math.exp(-gapMs / GAP_MEMORY_MS);
  return usual_gap_ms * weight + gapMs * (1 - weight);
}

/** The source without examples from before `before`; undefined if it has none. */
export function withoutOldExamples<S extends Pick<Source, 'examples'>>(
  source: S,
  before: number,
): S | undefined {
  const all = Object.entries(source.examples);
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
    if (record.name !== NO_SOURCE.name) known.sources.push(record);
  }
  for (const { sources } of projects.values()) sources.sort((a, b) => (a.name < b.name ? -1 : 1));
  return [...projects.values()].sort((a, b) => (a.project < b.project ? -1 : 1));
}
