/** Keeps plain events and filters them. Too slow to use, but obviously correct: the oracle for the other stores. */
import { CATEGORIES, type Category, type Event, PAGE_CODES, topUrl } from '../packages/server/src/event.ts';
import { AttackBlock } from '../packages/server/src/store/attack-block.ts';
import type { CountedField } from '../packages/server/src/store/attack-counts.ts';
import { encodeBlock } from '../packages/server/src/store/attack-encode.ts';
import {
  type AttackEntry,
  compareEntries,
  entryId,
  entryKey,
  sampleRank,
  toEntry,
} from '../packages/server/src/store/attack-entries.ts';
import { type AttackFilter, FILTERS, type FilterName } from '../packages/server/src/store/attack-filter.ts';
import { lowestThreshold } from '../packages/server/src/store/attack-hours.ts';
import { SelectedRows } from '../packages/server/src/store/attack-selection.ts';
import { isStart } from '../packages/server/src/store/batches.ts';
import { decide, decideSources } from '../packages/server/src/store/decide.ts';
import {
  type FlaggedRequests,
  type Generations,
  NO_REQUESTS,
  type RequestRecord,
} from '../packages/server/src/store/flagged-requests.ts';
import { deletedHostId, freeHostId } from '../packages/server/src/store/ids.ts';
import { WITHOUT_HOST } from '../packages/server/src/store/minutes.ts';
import { ROWS, type Row, type RowsName } from '../packages/server/src/store/rows.ts';
import { finish } from '../packages/server/src/store/slices.ts';
import { groupSources, newSource, withoutOldExamples } from '../packages/server/src/store/sources.ts';
import {
  ALL_LISTS,
  type AnyCounts,
  type AnyListName,
  type Appended,
  appendLimits,
  type BatchLink,
  type BatchRecord,
  type CountQuery,
  type Counts,
  compareFollowed,
  coveredHours,
  type FollowedPath,
  HOUR_MS,
  type Host,
  type LimitOptions,
  NO_SOURCE,
  type RetentionNote,
  type Source,
  type Store,
  StoreUnavailable,
  storedCategory,
  TOP_LISTS,
  type TopItem,
  topKey,
} from '../packages/server/src/store/store.ts';
import { addCount, type CategoryCounts, TopSummary } from '../packages/server/src/store/top-lists.ts';
import {
  addToRecords,
  decodeRecord,
  type HourAdditions,
  type Sections,
} from '../packages/server/src/store/top-records.ts';

/** A value of a top list. An attack has up to four of them. */
interface Mention {
  hostId: string | null;
  list: AnyListName;
  hour: number;
  key: string;
  category: number;
  count: number;
}

interface Project {
  events: Event[];
  mentions: Mention[];
  attacks: AttackEntry[];
  /** By hour, of attacks that were copied, or left after others were erased: those with larger ranks are gone. */
  thresholds: Map<number, number>;
  hosts: Host[];
  /** Deleted hosts, under the IDs of `deletedHostId`. */
  deletedHosts: Host[];
  sources: Source[];
  /** Batches by source name. */
  batches: Map<string, BatchRecord[]>;
  followed: FollowedPath[];
  generations: Generations;
  /** Flagged requests by source name and key. */
  requests: Map<string, Map<string, RequestRecord>>;
}

export function memoryStore(
  now: () => number = Date.now,
  limits: Pick<LimitOptions, 'requestsMax' | 'eventsMax'> = {},
): Store {
  const { requestsMax, eventsMax } = appendLimits(limits);
  const projects = new Map<string, Project>();
  let horizon = 0;
  let freedBefore = 0;
  let topListsBefore = 0;
  let note: RetentionNote | null = null;
  let changes = 0;
  let closed = false;

  function open(id: string): Project {
    if (closed) throw new StoreUnavailable('the store is closed');
    const empty = {
      events: [],
      mentions: [],
      attacks: [],
      thresholds: new Map(),
      hosts: [],
      deletedHosts: [],
      sources: [],
      batches: new Map(),
      followed: [],
      generations: NO_REQUESTS,
      requests: new Map(),
    };
    const project = projects.get(id) ?? empty;
    projects.set(id, project);
    return project;
  }

  function matching(id: string, hosts: readonly string[] | undefined, ignoreHorizon = false): Event[] {
    const events = open(id).events.filter(({ time }) => ignoreHorizon || time >= horizon);
    return hosts ? events.filter((event) => event.hostId !== null && hosts.includes(event.hostId)) : events;
  }

  /** The matching events of each point between neighbouring edges. */
  function pointsOf(query: Omit<CountQuery, 'rows'> & { rows?: RowsName }): Event[][] {
    const { project, hosts, edges, ignoreHorizon, rows } = query;
    // Bytes count at the start of their minute.
    const timeOf = ({ time }: Event) => (rows === 'traffic' ? time - (time % 60_000) : time);
    const first = ignoreHorizon ? 0 : horizon;
    const events = matching(project, hosts, ignoreHorizon).filter((event) => timeOf(event) >= first);
    return edges.slice(1).map((end, i) => {
      const start = edges[i] ?? end;
      return events.filter((event) => start <= timeOf(event) && timeOf(event) < end);
    });
  }

  function count(query: CountQuery): AnyCounts {
    const { project, rows, byHost } = query;
    if (!byHost) return countRows(pointsOf(query), rows);
    const hosts = query.hosts ?? open(project).hosts.map(({ id }) => id);
    const counted = hosts.map((id) => [id, countRows(pointsOf({ ...query, hosts: [id] }), rows)] as const);
    return new Map(counted.filter(([, all]) => all.some((row) => row.some((n) => n > 0))));
  }

  /** Oldest first. */
  function keptHours(id: string, first = Math.ceil(Math.max(horizon, topListsBefore) / HOUR_MS)) {
    const { attacks, thresholds } = open(id);
    const hours = [...new Set(attacks.map(hourOf))].filter((hour) => hour >= first).sort((a, b) => a - b);
    return hours.map((hour) => {
      const all = attacks.filter((attack) => hourOf(attack) === hour);
      return { hour, ...keptAttacks(id, all, eventsMax, thresholds.get(hour) ?? 0) };
    });
  }

  const store: Store = {
    async append(batch) {
      const project = open(batch.project);
      for (const { attack } of batch.events) if (attack !== null) storedCategory(attack);
      const registered = new Set(project.hosts.map(({ id }) => id));
      const batchesOf = (source: string) => project.batches.get(source) ?? [];
      const known = {
        horizon,
        generations: project.generations,
        hasHost: (id: string) => registered.has(id),
        dayOfBatch: (source: string, id: string) => batchesOf(source).find((other) => other.id === id)?.day,
        idsAfter: (source: string, after: string) =>
          linksAfter(batchesOf(source), after).map((other) => other.id),
        request: (source: string, key: string) => project.requests.get(source)?.get(key),
      };
      const decision = finish(decide([batch], known, now(), requestsMax));
      const { results, batches, counted, requests } = decision;
      if (counted.length === 0) return results[0] as Appended;
      for (const { source, id } of batches.removed) {
        project.batches.set(
          source,
          batchesOf(source).filter((other) => other.id !== id),
        );
      }
      for (const { source, record } of batches.added) {
        project.batches.set(source, [...batchesOf(source), record]);
      }
      putRequests(project, requests);
      for (const event of counted.flatMap(({ events }) => events)) {
        const { hostId } = event;
        const assigned = hostId === null || registered.has(hostId) ? event : { ...event, hostId: null };
        project.events.push(assigned);
        if (event.time >= topListsBefore) project.mentions.push(...mentionsOf(assigned));
        const isKept = eventsMax > 0 && hourOf(assigned) * HOUR_MS >= Math.max(topListsBefore, freedBefore);
        if (assigned.attack !== null && isKept) project.attacks.push(toEntry(assigned, assigned.hostId));
      }
      for (const { hostId, hour, code, paths } of batch.pages ?? []) {
        if (hour * HOUR_MS < Math.max(topListsBefore, freedBefore)) continue;
        const registeredId = hostId !== null && registered.has(hostId) ? hostId : null;
        for (const [key, count] of paths)
          project.mentions.push({ hostId: registeredId, list: 'pages', hour, key, category: code, count });
      }
      if (batch.followed) putFollowed(project, batch.followed);
      const sourceOf = (name: string) => project.sources.find((source) => source.name === name);
      const sources = decideSources(
        counted,
        (source) => sourceOf(source.name) ?? { ...newSource(batch.project, source), hosts: [] },
      );
      for (const [name, { record, hosts }] of sources) {
        const updated = { ...record, hosts: [...new Set([...record.hosts, ...hosts])].sort() };
        project.sources = [...project.sources.filter((source) => source.name !== name), updated];
      }
      changes++;
      return results[0] as Appended;
    },

    async count<Q extends CountQuery>(query: Q) {
      return count(query) as unknown as Counts<Q>;
    },

    async peaks(query) {
      return ROWS.groups.map((row) => perPoint(pointsOf(query), row, busiestSecond));
    },

    async top({ project, hosts, list, categories = CATEGORIES, codes = PAGE_CODES, limit, ...range }) {
      const { from, to } = coveredHours(range, Math.max(horizon, topListsBefore));
      const registered = new Set(open(project).hosts.map(({ id }) => id));
      const selected = open(project).mentions.filter(
        ({ hostId, list: other, hour, category }) =>
          other === list &&
          (hosts === undefined || (hostId !== null && hosts.includes(hostId) && registered.has(hostId))) &&
          from <= hour * HOUR_MS &&
          hour * HOUR_MS < to &&
          (list === 'pages'
            ? codes.includes(PAGE_CODES[category] ?? 0)
            : categories.includes(CATEGORIES[category] as Category)),
      );
      const counts = new Map<string, number>();
      for (const { key, hostId, count } of selected) {
        const item = JSON.stringify(list === 'urls' || list === 'pages' ? { key, hostId } : { key });
        counts.set(item, (counts.get(item) ?? 0) + count);
      }
      const items = Array.from(counts, ([item, count]) => ({ ...JSON.parse(item), count, error: 0 }));
      return {
        from,
        to,
        attacks: sum(selected),
        distinct: items.length,
        distinctIs: 'exact',
        error: 0,
        items: items.sort(compareTopItems).slice(0, limit),
      };
    },

    async attacks({ project, hosts, from, to, filter, isAscending, offset, limit }) {
      const registered = new Set(open(project).hosts.map(({ id }) => id));
      const counted = keptHours(project)
        .flatMap(({ entries }) => entries)
        .filter(({ time }) => from <= time && time < to)
        .map((entry) => ({ ...entry, id: entryId(entry) }))
        .map((entry) => (registered.has(entry.hostId ?? '') ? entry : { ...entry, hostId: null }))
        .filter(({ hostId }) => hosts === undefined || (hostId !== null && hosts.includes(hostId)))
        .filter((entry) => isSelected(entry, filter, ['categories']));
      const selected = counted.filter((entry) => isSelected(entry, filter, FILTERS));
      const sorted = isAscending ? selected : selected.toReversed();
      return {
        items: sorted.slice(offset, offset + limit),
        total: selected.length,
        totalAttacks: sum(selected),
        kept: counted.length,
        keptAttacks: sum(counted),
      };
    },

    async countAttacks({ edges, by, ...query }) {
      const range = { from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
      const page = { isAscending: true, offset: 0, limit: Number.POSITIVE_INFINITY };
      const { items, keptAttacks } = await store.attacks({ ...query, ...range, ...page });
      const points = new Map<string, Float64Array>();
      for (const item of items) {
        const value = fieldOf(item, by);
        if (value === undefined) continue;
        const counts = points.get(value) ?? new Float64Array(edges.length - 1);
        const point = edges.findLastIndex((edge) => edge <= item.time);
        counts[point] = (counts[point] ?? 0) + item.count;
        points.set(value, counts);
      }
      return { points, keptAttacks };
    },

    async scanAttacks({ project, hosts, from, to }, visit) {
      const registered = new Set(open(project).hosts.map(({ id }) => id));
      for (const { hour, entries } of keptHours(project)) {
        const selected = entries
          .filter(({ time }) => from <= time && time < to)
          .filter(({ hostId: id }) => !hosts || (id !== null && registered.has(id) && hosts.includes(id)));
        const blocks = blocksOf(project, hour, selected, 0);
        finish(
          visit(blocks.map((block) => new SelectedRows(block, block.length, block.attacks, () => undefined))),
        );
      }
    },

    async eraseAttacks(id, filter) {
      const project = open(id);
      let erased = 0;
      const hours = keptHours(id, 0);
      project.attacks = [];
      project.thresholds.clear();
      for (const { hour, entries, threshold } of hours) {
        const kept = entries.filter((entry) => {
          return !isSelected({ ...entry, id: entryId(entry) }, filter, FILTERS);
        });
        erased += entries.length - kept.length;
        project.attacks.push(...kept);
        if (kept.length > 0) project.thresholds.set(hour, threshold);
      }
      if (erased > 0) changes++;
      return erased;
    },

    async version() {
      if (closed) throw new StoreUnavailable('the store is closed');
      return String(changes);
    },

    hasFastVersions: true,

    async batchesAfter(project, source, after) {
      return linksAfter(open(project).batches.get(source) ?? [], after);
    },

    async followedPaths(project) {
      return structuredClone(open(project).followed);
    },

    async putFollowedPath(project, followed) {
      putFollowed(open(project), followed);
    },

    async addHost({ project: projectId, hostname, id, limit, created = now() }) {
      const project = open(projectId);
      const byName = project.hosts.find((host) => host.hostname === hostname);
      if (byName) return { kind: 'exists', host: byName };
      const deleted = project.deletedHosts;
      const taken =
        id === undefined
          ? undefined
          : [...project.hosts, ...deleted].find((host) => [id, deletedHostId(id)].includes(host.id));
      if (taken) return { kind: 'id_taken', host: taken };
      if (project.hosts.length >= limit) return { kind: 'full' };
      const isTaken = (derived: string) =>
        [...project.hosts, ...deleted].some((host) => [derived, deletedHostId(derived)].includes(host.id));
      const host = { id: id ?? freeHostId(projectId, hostname, isTaken), hostname, created };
      project.hosts.push(host);
      return { kind: 'added', host };
    },

    async resolveHosts({ project, hostnames, limit }) {
      const ids: (string | null)[] = [];
      for (const hostname of hostnames) {
        const added = await store.addHost({ project, hostname, limit });
        ids.push('host' in added ? added.host.id : null);
      }
      return ids;
    },

    async renameHost({ project: projectId, id, hostname }) {
      const project = open(projectId);
      const host = project.hosts.find((candidate) => candidate.id === id);
      if (host === undefined) return { kind: 'unknown' };
      const other = project.hosts.find((candidate) => candidate.hostname === hostname);
      if (other && other.id !== id) return { kind: 'name_taken', host: other };
      const renamed = { ...host, hostname };
      project.hosts = project.hosts.map((candidate) => (candidate.id === id ? renamed : candidate));
      return { kind: 'renamed', host: renamed };
    },

    async deleteHost({ project: projectId, id }) {
      const project = open(projectId);
      const host = project.hosts.find((candidate) => candidate.id === id);
      if (host === undefined) return { kind: 'unknown' };
      changes++;
      project.hosts = project.hosts.filter((candidate) => candidate.id !== id);
      project.events = project.events.map((event) =>
        event.hostId === id ? { ...event, hostId: null } : event,
      );
      project.deletedHosts.push({ ...host, id: deletedHostId(id), hostname: deletedHostId(id) });
      project.sources = project.sources.map((source) => ({
        ...source,
        hosts: source.hosts.filter((hostId) => hostId !== id),
      }));
      return { kind: 'deleted', host };
    },

    async hosts(project) {
      return open(project).hosts.toSorted((a, b) => (a.hostname < b.hostname ? -1 : 1));
    },

    async projects() {
      const records = [...projects].flatMap(([id, { sources }]) =>
        sources.map(({ hosts: _, ...source }) => [id, source] as const),
      );
      return groupSources(records);
    },

    async sources(project) {
      const listed = open(project).sources.filter(({ name }) => name !== NO_SOURCE.name);
      return listed.sort((a, b) => (a.name < b.name ? -1 : 1));
    },

    transfer: {
      async *events(project) {
        const events = matching(project, undefined).map((event) => ({
          ...event,
          details: event.details?.blocked === true ? { blocked: true } : undefined,
        }));
        yield { id: 'all', events };
      },

      async *batches(project, source) {
        yield open(project).batches.get(source) ?? [];
      },

      async putSource(projectId, source, batches) {
        const project = open(projectId);
        project.sources = [...project.sources.filter(({ name }) => name !== source.name), source];
        const known = project.batches.get(source.name) ?? [];
        const others = known.filter(({ id }) => !batches.some((batch) => batch.id === id));
        project.batches.set(source.name, [...others, ...batches]);
      },

      async *topSlices(project) {
        const hours = new Map<number, Mention[]>();
        for (const mention of open(project).mentions) {
          if (mention.hour * HOUR_MS < Math.max(horizon, topListsBefore)) continue;
          hours.set(mention.hour, [...(hours.get(mention.hour) ?? []), mention]);
        }
        yield Array.from(hours, ([hour, mentions]) => {
          const additions = additionsOf(mentions);
          const keysMax = Number.POSITIVE_INFINITY;
          const [joint] = finish(addToRecords({ additions, read: () => undefined, project, keysMax }));
          if (joint === undefined || joint.hostId !== null)
            throw new Error('the oracle has only joint records');
          return { hour, ...joint };
        });
      },

      async *attackHours(project) {
        for (const { hour, entries, threshold } of keptHours(project))
          yield { hour, blocks: blocksOf(project, hour, entries, threshold) };
      },

      async putAttackHour(projectId, { hour, blocks }) {
        const project = open(projectId);
        const others = project.attacks.filter((attack) => hourOf(attack) !== hour);
        project.attacks = [...others, ...blocks.flatMap((block) => block.entries())];
        project.thresholds.set(hour, lowestThreshold(blocks));
      },

      async putTopSlices(projectId, slices) {
        const project = open(projectId);
        for (const { hour, record } of slices) {
          const { hosts } = decodeRecord(record);
          if (hosts === null) throw new Error('the oracle has only joint records');
          project.mentions = project.mentions.filter((mention) => mention.hour !== hour);
          for (const [id, sections] of hosts)
            project.mentions.push(...mentionsIn(sections, hour, id || null));
        }
      },
    },

    async deleteDetails(project) {
      changes++;
      open(project).mentions = [];
      open(project).attacks = [];
      open(project).thresholds.clear();
      open(project).requests.clear();
      deleteExamples(open(project), Number.POSITIVE_INFINITY);
    },

    async prune(before, options = {}) {
      const { freeBefore = before, topListsBefore: listsBefore = before, expectedHorizon } = options;
      changes++;
      topListsBefore = Math.max(topListsBefore, listsBefore);
      if (expectedHorizon === undefined || expectedHorizon === horizon) {
        horizon = Math.max(horizon, before);
        freedBefore = Math.max(freedBefore, Math.min(freeBefore, horizon));
      }
      for (const project of projects.values()) {
        project.events = project.events.filter(({ time }) => time >= freedBefore);
        const keptFrom = Math.ceil(Math.max(topListsBefore, freedBefore) / HOUR_MS);
        project.attacks = project.attacks.filter((attack) => hourOf(attack) >= keptFrom);
        forgetRequests(project, ({ time }) => time < freedBefore);
        deleteExamples(project, listsBefore);
      }
    },

    async retention() {
      const times = [...projects.values()].flatMap(({ events }) => events.map(({ time }) => time));
      const newestEvent = times.length === 0 ? null : times.reduce((a, b) => Math.max(a, b));
      return { horizon, freedBefore, newestEvent, note };
    },

    async noteRetention(noted, previous) {
      if (note?.passedAt === previous?.passedAt) note = noted;
    },

    async restoreHorizon(to) {
      changes++;
      horizon = Math.min(horizon, Math.max(to, freedBefore));
      return horizon;
    },

    async check() {
      if (closed) throw new StoreUnavailable('the store is closed');
    },

    async close() {
      closed = true;
    },
  };
  return store;
}

function hourOf({ time }: { time: number }): number {
  return Math.floor(time / HOUR_MS);
}

/** Whether the entry fulfils these conditions of the filter. */
function isSelected(entry: AttackEntry, { include, exclude }: AttackFilter, names: readonly FilterName[]) {
  const has = (name: FilterName, values: readonly string[]) =>
    valuesOf(entry, name).some((one) => values.some((other) => isSame(name, one, other)));
  return names.every((name) => {
    const [wanted, unwanted] = [include[name], exclude[name]];
    return (wanted === undefined || has(name, wanted)) && (unwanted === undefined || !has(name, unwanted));
  });
}

function fieldOf(entry: AttackEntry, by: CountedField): string | undefined {
  const { category, hostId, source, country, url, rules } = entry;
  if (by === 'actions') return `${category} ${valuesOf(entry, 'actions')[0]}`;
  if (by === 'urls') return url && `${hostId ?? ''}\0${topUrl(url)}`;
  return { hosts: hostId ?? undefined, sources: source, rules: rules[0]?.id, countries: country }[by];
}

function valuesOf(entry: AttackEntry, name: FilterName): string[] {
  const { id, hostId, category, blocked, source, country, method, url, status, rules } = entry;
  if (name === 'rules') return rules.map((rule) => rule.id);
  if (name === 'values' || name === 'valueParts') return rules.map(({ value = '' }) => value);
  const action = blocked === undefined ? '' : blocked ? 'block' : 'log';
  const values = { ids: id, hosts: hostId, categories: category, actions: action, sources: source };
  const parts = { sourceParts: source, urlParts: url };
  const others = { countries: country, methods: method, urls: url, statuses: status, ...parts };
  return [String({ ...values, ...others }[name] ?? '')];
}

function isSame(name: FilterName, value: string, wanted: string): boolean {
  if (name.endsWith('Parts')) return value.includes(wanted);
  if (name === 'urls' && wanted.endsWith('*')) return value !== '' && value.startsWith(wanted.slice(0, -1));
  if (name !== 'sources') return value === wanted;
  const [[address = '', bits], [kept = '', keptBits]] = [wanted.split('/'), value.split('/')];
  const [one, other] = [bitsOf(kept), bitsOf(address)];
  const length = Math.min(Number(bits ?? 128), Number(keptBits ?? 128), address.includes(':') ? 64 : 32);
  return one.length === other.length && one.length > 0 && one.slice(0, length) === other.slice(0, length);
}

/** The bits of an address as text; '' for any other text. */
function bitsOf(address: string): string {
  const bits = (text: string, base: number, length: number) =>
    Number.parseInt(text, base).toString(2).padStart(length, '0');
  if (/^[\d.]+$/.test(address))
    return address
      .split('.')
      .map((part) => bits(part, 10, 8))
      .join('');
  if (!address.includes(':')) return '';
  const [head = '', tail] = address
    .split('::')
    .map((part) => part.split(':').filter((group) => group !== ''));
  const groups = [...head, ...Array(8 - head.length - (tail?.length ?? 0)).fill('0'), ...(tail ?? [])];
  return groups.map((group) => bits(group, 16, 16)).join('');
}

/** The entries of an hour, in blocks of up to a thousand. */
function blocksOf(project: string, hour: number, entries: readonly AttackEntry[], threshold: number) {
  const parts = Array.from({ length: Math.ceil(entries.length / 1_000) }, (_, i) =>
    entries.slice(i * 1_000, (i + 1) * 1_000),
  );
  const ranksOf = (part: readonly AttackEntry[]) =>
    threshold > 0 ? part.map((entry) => sampleRank(project, entryKey(entry))) : [];
  return parts.map((part) => {
    const content = { hour, entries: part, threshold, ranks: ranksOf(part) };
    return AttackBlock.of(hour, finish(encodeBlock(content)));
  });
}

/** Adds up equal attacks, and keeps those with the smallest ranks. `before`: no larger ones than this, unless it is 0. */
function keptAttacks(project: string, attacks: readonly AttackEntry[], eventsMax: number, before: number) {
  // Those that were kept before keeping was turned off stay.
  const limit = eventsMax || Number.POSITIVE_INFINITY;
  const distinct = new Map<string, AttackEntry>();
  for (const attack of attacks) {
    const key = entryKey(attack);
    distinct.set(key, { ...attack, count: attack.count + (distinct.get(key)?.count ?? 0) });
  }
  const ranked = Array.from(distinct.values(), (entry) => ({
    entry,
    rank: sampleRank(project, entryKey(entry)),
  })).filter(({ rank }) => before === 0 || rank <= before);
  ranked.sort((a, b) => a.rank - b.rank || compareEntries(a.entry, b.entry));
  const entries = ranked.slice(0, limit).map(({ entry }) => entry);
  const threshold = ranked.length > limit ? (ranked[limit - 1]?.rank ?? 0) : before;
  return { entries: entries.sort(compareEntries), threshold };
}

function deleteExamples(project: { sources: Source[] }, before: number): void {
  project.sources = project.sources.map((source) => withoutOldExamples(source, before) ?? source);
}

function mentionsOf({ time, hostId, attack, count, details = {} }: Event): Mention[] {
  if (attack === null) return [];
  return TOP_LISTS.flatMap((list) => {
    const key = topKey(list, details);
    if (key === undefined) return [];
    return { hostId, list, hour: Math.floor(time / HOUR_MS), key, category: storedCategory(attack), count };
  });
}

function additionsOf(mentions: readonly Mention[]): HourAdditions {
  const hosts = new Map<string, Map<string, CategoryCounts>[]>();
  for (const { hostId, list, key, category, count } of mentions) {
    const lists = hosts.get(hostId ?? WITHOUT_HOST) ?? [];
    hosts.set(hostId ?? WITHOUT_HOST, lists);
    const additions = lists[ALL_LISTS.indexOf(list)] ?? new Map<string, CategoryCounts>();
    lists[ALL_LISTS.indexOf(list)] = additions;
    const counts = additions.get(key) ?? [];
    additions.set(key, counts);
    addCount(counts, category, count);
  }
  return hosts;
}

function mentionsIn(sections: Sections, hour: number, hostId: string | null): Mention[] {
  return ALL_LISTS.flatMap((list, i) => {
    const summary = sections[i];
    if (summary === undefined) return [];
    return [...TopSummary.decode(summary).entries].flatMap(([key, { counts }]) =>
      Array.from({ length: counts.length / 2 }, (_, n) => {
        const [category = 0, count = 0] = counts.slice(2 * n);
        return { hostId, list, hour, key, category, count };
      }),
    );
  });
}

function putFollowed(project: Project, followed: FollowedPath): void {
  const { source, path } = followed;
  const others = project.followed.filter((other) => other.source !== source || other.path !== path);
  project.followed = [...others, structuredClone(followed)].sort(compareFollowed);
}

function putRequests(project: Project, requests: FlaggedRequests): void {
  project.generations = requests.generations;
  for (const [name, { changes }] of requests.sources) {
    const records = project.requests.get(name) ?? new Map<string, RequestRecord>();
    project.requests.set(name, records);
    for (const [key, record] of changes) {
      if (record === null) records.delete(key);
      else records.set(key, record);
    }
  }
  forgetRequests(project, ({ generation }) => generation < requests.firstKnown);
}

function forgetRequests(project: Project, isForgotten: (record: RequestRecord) => boolean): void {
  for (const records of project.requests.values()) {
    for (const [key, record] of records) if (isForgotten(record)) records.delete(key);
  }
}

function linksAfter(batches: readonly BatchRecord[], after: string): BatchLink[] {
  return batches.flatMap(({ id, link }) => {
    if (link === undefined || !isAfter(link, after)) return [];
    const { after: _, ...rest } = link;
    return [{ id, ...rest }];
  });
}

function countRows(points: Event[][], rows: RowsName): Float64Array[] {
  return ROWS[rows].map((row) =>
    perPoint(points, row, (events) => Math.min(sum(events), Number.MAX_SAFE_INTEGER)),
  );
}

/** A number per point, from the events that count in the row. */
function perPoint(points: Event[][], row: Row, count: (events: Event[]) => number): Float64Array {
  return Float64Array.from(points, (point) => count(point.flatMap((event) => countedIn(row, event))));
}

/** What counts of an event: itself, nothing, or its bytes. */
function countedIn(row: Row, event: Event): Event[] {
  const { request, attack, details } = event;
  if (row !== null && 'categories' in row) {
    const isCounted = attack !== null && row.categories.includes(attack);
    return isCounted && (!row.blocked || details?.blocked === true) ? [event] : [];
  }
  if (!request) return [];
  if (row === null) return [event];
  if ('codes' in row) return byCode(event, row.upstream).filter(({ status }) => row.codes.includes(status));
  return [{ ...event, count: (row.bytes === 'in' ? event.bytesIn : event.bytesOut) ?? 0 }];
}

/** An event for each code, which is its status: that of the firewall, or of the server behind it. */
function byCode(event: Event, upstream: boolean | undefined): (Event & { status: number })[] {
  const { status = 0, upstreamStatus = status, otherCodes = [] } = event;
  const others = otherCodes.flatMap((code, i) =>
    i % 2 === 0 ? [{ ...event, status: code, count: otherCodes[i + 1] ?? 0 }] : [],
  );
  return [
    { ...event, status: upstream ? upstreamStatus : status, count: event.count - sum(others) },
    ...others,
  ];
}

function busiestSecond(events: readonly Event[]): number {
  const seconds = new Map<number, number>();
  for (const { time, count } of events) {
    const second = Math.floor(time / 1_000);
    seconds.set(second, (seconds.get(second) ?? 0) + count);
  }
  return Math.max(0, ...seconds.values());
}

function sum(events: readonly { count: number }[]): number {
  return events.reduce((total, { count }) => total + count, 0);
}

/** Whether a link is one of those after `after`: see `batchesAfter`. */
function isAfter(link: { after: string }, after: string): boolean {
  if (after === '') return isStart(link.after);
  return link.after === after || (link.after === '' && isStart(after));
}

/** The order of items in a top list. */
export function compareTopItems(a: TopItem, b: TopItem): number {
  if (a.count !== b.count) return b.count - a.count;
  const [host, otherHost] = [a.hostId ?? '', b.hostId ?? ''];
  const [one, other] = host === otherHost ? [a.key, b.key] : [host, otherHost];
  return one < other ? -1 : one > other ? 1 : 0;
}
