/** What a group of batches changes in the ledger. Pure: the same page and batches always give the same. */
import type { Event } from '../../event.ts';
import { derivedId } from '../ids.ts';
import {
  type Appended,
  type Batch,
  linkHolds,
  linkOfRecord,
  linkRecord,
  newSource,
  tallySource,
} from '../store.ts';
import {
  type BatchValue,
  batchKey,
  followedKey,
  hostKey,
  type LinksValue,
  linksKey,
  type SourceValue,
  sourceHostKey,
  sourceKey,
} from './keys.ts';
import type { Page } from './ledger.ts';

const DAY_MS = 86_400_000;

export interface GroupPlan {
  results: Appended[];
  /** What each batch that counts adds, with hosts that the project has. */
  counted: { project: string; events: Event[] }[];
  writes: Map<string, string>;
}

/** Every key that `planGroup` looks at. */
export function keysOf(batches: readonly Batch[]): Set<string> {
  const keys = new Set<string>();
  for (const { project, source, id, link, events } of batches) {
    keys.add(sourceKey(project, source.name));
    for (const host of hostsOf(events)) {
      keys.add(hostKey(project, host)).add(sourceHostKey(project, source.name, host));
    }
    if (id !== undefined) keys.add(batchKey(project, source.name, id));
    if (link) {
      keys.add(linksKey(project, source.name, link.after));
      for (const other of [link.after, link.replaces]) {
        if (other !== undefined) {
          keys.add(batchKey(project, source.name, other)).add(linksKey(project, source.name, other));
        }
      }
    }
  }
  return keys;
}

export function planGroup(page: Page, batches: readonly Batch[], now: number): GroupPlan {
  const plan: GroupPlan = { results: [], counted: [], writes: new Map() };
  // A batch sees what those before it in the group have changed.
  const get = (key: string) => plan.writes.get(key) ?? page.get(key);
  for (const batch of batches) plan.results.push(planBatch(page.head.horizon, get, plan, batch, now));
  return plan;
}

function planBatch(
  horizon: number,
  get: (key: string) => string,
  { counted, writes }: GroupPlan,
  batch: Batch,
  now: number,
): Appended {
  const { project, source, id, link } = batch;
  const isKnown = (other: string) => get(batchKey(project, source.name, other)) !== '';
  const storedLinks = (other: string) => parse<LinksValue>(get(linksKey(project, source.name, other))) ?? [];
  const linksAfter = (other: string) =>
    storedLinks(other).map((one) => ({ id: one.id, ...linkOfRecord(one) }));
  if (id !== undefined && isKnown(id)) return { kind: 'duplicate' };
  if (link && !linkHolds(link, isKnown, linksAfter)) return { kind: 'conflict' };

  const inTime = batch.events.filter(({ time }) => time >= horizon);
  const unknown = new Set(hostsOf(inTime).filter((host) => get(hostKey(project, host)) === ''));
  const events = inTime.map((event) =>
    event.hostId !== null && unknown.has(event.hostId) ? { ...event, hostId: null } : event,
  );
  counted.push({ project, events });

  for (const host of hostsOf(events)) {
    const key = sourceHostKey(project, source.name, host);
    if (get(key) === '') writes.set(key, '1');
  }
  const key = sourceKey(project, source.name);
  const fresh = newSource(derivedId('source', project, source.name), source);
  const known: SourceValue = { ...fresh, ...parse<SourceValue>(get(key)) };
  const withoutHost = events.filter(({ hostId }) => hostId === null).length;
  const { hosts: _, ...tallied } = tallySource({ ...known, hosts: [] }, batch, inTime, withoutHost);
  writes.set(key, JSON.stringify(tallied));
  if (batch.followed) {
    const { source: name, path } = batch.followed;
    writes.set(followedKey(project, name, path), JSON.stringify(batch.followed));
  }
  if (id !== undefined) {
    const latest = inTime.reduce((last, { time }) => Math.max(last, time), now);
    const value: BatchValue = { day: Math.floor(latest / DAY_MS), ...(link ? { after: link.after } : {}) };
    writes.set(batchKey(project, source.name, id), JSON.stringify(value));
    if (link) {
      const { after, replaces } = link;
      const others = storedLinks(after).filter((other) => other.id !== replaces);
      const links: LinksValue = [...others, { id, ...linkRecord(link) }];
      writes.set(linksKey(project, source.name, after), JSON.stringify(links));
      if (replaces !== undefined) writes.set(batchKey(project, source.name, replaces), '');
    }
  }
  const unknownHosts = inTime.filter(({ hostId }) => hostId !== null && unknown.has(hostId)).length;
  const beforeHorizon = batch.events.length - inTime.length;
  return { kind: 'appended', beforeHorizon, withoutHost, unknownHosts };
}

function hostsOf(events: readonly Event[]): string[] {
  const ids = new Set<string>();
  for (const { hostId } of events) if (hostId !== null) ids.add(hostId);
  return [...ids];
}

export function parse<T>(value: string): T | undefined {
  return value === '' ? undefined : JSON.parse(value);
}
