/** The hosts of projects, in the ledger. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type AddedHost,
  derivedId,
  type Host,
  type HostnamesToResolve,
  type NewHost,
  type RenamedHost,
} from '../store.ts';
import {
  type HostValue,
  hostKey,
  hostnameKey,
  type Ledger,
  type ProjectValue,
  parse,
  partsOf,
  projectKey,
  type Snapshot,
} from './ledger.ts';

/** IDs to try for a name. Some may be taken: by a renamed host, or by one whose ID a user chose. */
const DERIVED_IDS_MAX = 16;

/** For more names, all names of the project are read. */
const NAMES_PER_READ = 1_000;
/** New names per change of the ledger: a statement of some hundred kilobytes. */
const NEW_NAMES_PER_CHANGE = 1_000;
/** Names that are looked up in one turn of the event loop: some milliseconds. */
const NAMES_PER_TURN = 5_000;

interface NewHosts {
  /** By name. */
  ids: Map<string, string>;
  /** How many more hosts the project may have. */
  room: number;
}

/** Looks up the names and registers new ones, until none is left or the project is full. */
export async function resolveHosts(
  ledger: Ledger,
  query: HostnamesToResolve,
  now: number,
): Promise<(string | null)[]> {
  const { project, hostnames, limit } = query;
  const ids = new Array<string | null>(hostnames.length).fill(null);
  if (hostnames.length === 0) return ids;
  /** Null for names that cannot be registered, because all their derived IDs are taken. */
  const registered = new Map<string, string | null>();
  let room: number | null = null;
  for (;;) {
    const { hosts, find } = await readHostnames(ledger, project, hostnames);
    room ??= limit - hosts;
    const newNames = new Set<string>();
    for (const [i, hostname] of hostnames.entries()) {
      if (i % NAMES_PER_TURN === NAMES_PER_TURN - 1) await nextTurn();
      const id = ids[i] ?? registered.get(hostname) ?? find(hostname) ?? null;
      ids[i] = id;
      const isNew = id === null && !registered.has(hostname);
      if (isNew && newNames.size < Math.min(room, NEW_NAMES_PER_CHANGE)) newNames.add(hostname);
    }
    if (newNames.size === 0) return ids;
    const added = await addHosts(ledger, query, newNames, now);
    for (const hostname of newNames) registered.set(hostname, added.ids.get(hostname) ?? null);
    room = added.room;
    // Saves a statement in nearly all cases.
    if (ids.every((id, i) => id !== null || registered.has(hostnames[i] ?? ''))) {
      return hostnames.map((hostname, i) => ids[i] ?? registered.get(hostname) ?? null);
    }
  }
}

async function readHostnames(
  ledger: Ledger,
  project: string,
  hostnames: readonly string[],
): Promise<{ hosts: number; find: (hostname: string) => string | undefined }> {
  const isFew = hostnames.length <= NAMES_PER_READ;
  const names = isFew ? hostnames.map((hostname) => hostnameKey(project, hostname)) : [];
  const snapshot = await ledger.read([projectKey(project), ...names]);
  const hosts = parse<ProjectValue>(snapshot.get(projectKey(project)))?.hosts ?? 0;
  if (isFew) return { hosts, find: (hostname) => snapshot.get(hostnameKey(project, hostname)) || undefined };
  const ids = new Map<string, string>();
  for await (const part of ledger.scanParts(hostnameKey(project, ''))) {
    for (const { key, value } of part) ids.set(partsOf(key)[1] ?? '', value);
  }
  return { hosts, find: (hostname) => ids.get(hostname) };
}

/** `crowded`: names whose first derived ID is taken, so that the snapshot must contain the others. */
async function addHosts(
  ledger: Ledger,
  query: HostnamesToResolve,
  hostnames: ReadonlySet<string>,
  now: number,
  crowded: ReadonlySet<string> = new Set(),
): Promise<NewHosts> {
  const { project, limit } = query;
  const candidates = [...hostnames].map((hostname) => ({
    hostname,
    ids: Array.from({ length: crowded.has(hostname) ? DERIVED_IDS_MAX : 1 }, (_, attempt) =>
      derivedId('host', project, hostname, attempt),
    ),
  }));
  const keys = candidates.flatMap(({ hostname, ids }) => [
    hostnameKey(project, hostname),
    ...ids.map((id) => hostKey(project, id)),
  ]);
  const added = await ledger.change<NewHosts | { crowded: Set<string> }>(
    [projectKey(project), ...keys],
    (snapshot) => {
      const before = parse<ProjectValue>(snapshot.get(projectKey(project)))?.hosts ?? 0;
      const registered = new Map<string, string>();
      const writes = new Map<string, string>();
      const taken = new Set<string>();
      let hosts = before;
      for (const { hostname, ids } of candidates) {
        const known = snapshot.get(hostnameKey(project, hostname));
        if (known !== '') registered.set(hostname, known);
        if (known !== '' || hosts >= limit) continue;
        const id = ids.find((candidate) => snapshot.get(hostKey(project, candidate)) === '');
        if (id === undefined) {
          if (!crowded.has(hostname)) taken.add(hostname);
          continue;
        }
        hosts++;
        registered.set(hostname, id);
        writes.set(hostnameKey(project, hostname), id);
        writes.set(hostKey(project, id), JSON.stringify({ hostname, created: now } satisfies HostValue));
      }
      if (taken.size > 0) return { result: { crowded: taken }, writes: new Map() };
      if (hosts > before) writes.set(projectKey(project), JSON.stringify({ hosts } satisfies ProjectValue));
      return { result: { ids: registered, room: limit - hosts }, writes };
    },
  );
  if (!('crowded' in added)) return added;
  return addHosts(ledger, query, hostnames, now, new Set([...crowded, ...added.crowded]));
}

/** `owner`: the ID of the host that has the name, if an earlier try found one. */
export async function addHost(
  ledger: Ledger,
  wanted: NewHost,
  now: number,
  owner?: string,
): Promise<AddedHost> {
  const { project, hostname, limit } = wanted;
  const name = hostnameKey(project, hostname);
  const ids =
    wanted.id === undefined
      ? Array.from({ length: DERIVED_IDS_MAX }, (_, i) => derivedId('host', project, hostname, i))
      : [wanted.id];
  const candidates = owner === undefined ? ids : [...ids, owner];
  const keys = [name, projectKey(project), ...candidates.map((id) => hostKey(project, id))];
  const added = await ledger.change<AddedHost | { owner: string }>(keys, (snapshot) => {
    const nothing = new Map<string, string>();
    const id = snapshot.get(name);
    // The name belongs to a host that is not in the snapshot.
    if (id !== '' && !candidates.includes(id)) return { result: { owner: id }, writes: nothing };
    const known = id === '' ? undefined : hostAt(snapshot, project, id);
    if (known) return { result: { kind: 'exists', host: known }, writes: nothing };
    const taken = wanted.id === undefined ? undefined : hostAt(snapshot, project, wanted.id);
    if (taken) return { result: { kind: 'id_taken', host: taken }, writes: nothing };
    const count = parse<ProjectValue>(snapshot.get(projectKey(project)))?.hosts ?? 0;
    const free = ids.find((candidate) => snapshot.get(hostKey(project, candidate)) === '');
    if (count >= limit || free === undefined) return { result: { kind: 'full' }, writes: nothing };
    const created = wanted.created ?? now;
    const host = { id: free, hostname, created };
    const writes = new Map([
      [name, free],
      [hostKey(project, free), JSON.stringify({ hostname, created } satisfies HostValue)],
      [projectKey(project), JSON.stringify({ hosts: count + 1 } satisfies ProjectValue)],
    ]);
    return { result: { kind: 'added', host }, writes };
  });
  return 'owner' in added ? addHost(ledger, wanted, now, added.owner) : added;
}

export async function renameHost(
  ledger: Ledger,
  wanted: { project: string; id: string; hostname: string },
  owner = wanted.id,
): Promise<RenamedHost> {
  const { project, id, hostname } = wanted;
  const name = hostnameKey(project, hostname);
  const keys = [name, hostKey(project, id), hostKey(project, owner)];
  const renamed = await ledger.change<RenamedHost | { owner: string }>(keys, (snapshot) => {
    const writes = new Map<string, string>();
    const host = hostAt(snapshot, project, id);
    if (host === undefined) return { result: { kind: 'unknown' }, writes };
    const ownerId = snapshot.get(name);
    if (ownerId !== '' && ownerId !== id) {
      const other = hostAt(snapshot, project, ownerId);
      return { result: other ? { kind: 'name_taken', host: other } : { owner: ownerId }, writes };
    }
    if (host.hostname !== hostname) {
      writes.set(hostnameKey(project, host.hostname), '');
      writes.set(name, id);
      writes.set(
        hostKey(project, id),
        JSON.stringify({ hostname, created: host.created } satisfies HostValue),
      );
    }
    return { result: { kind: 'renamed', host: { ...host, hostname } }, writes };
  });
  return 'owner' in renamed ? renameHost(ledger, wanted, renamed.owner) : renamed;
}

export async function hostsOfProject(ledger: Ledger, project: string): Promise<Host[]> {
  const found = await ledger.scan(`host/${encodeURIComponent(project)}/`);
  return Array.from(found, ([key, value]) => ({
    id: partsOf(key)[1] ?? '',
    ...(JSON.parse(value) as HostValue),
  })).sort((a, b) => (a.hostname < b.hostname ? -1 : 1));
}

function hostAt(snapshot: Snapshot, project: string, id: string): Host | undefined {
  const value = parse<HostValue>(snapshot.get(hostKey(project, id)));
  return value && { id, ...value };
}
