/** The hosts of projects, in the ledger. */
import { type Hostnames, type NewHosts, resolveHosts as resolve } from '../resolve-hosts.ts';
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

export function resolveHosts(
  ledger: Ledger,
  names: HostnamesToResolve,
  now: number,
): Promise<(string | null)[]> {
  return resolve(
    names,
    NEW_NAMES_PER_CHANGE,
    () => readHostnames(ledger, names),
    (newNames) => addHosts(ledger, names, newNames, now),
  );
}

async function readHostnames(ledger: Ledger, { project, hostnames }: HostnamesToResolve): Promise<Hostnames> {
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
    ids: derivedIds(project, hostname, crowded.has(hostname) ? DERIVED_IDS_MAX : 1),
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
        putHost(writes, project, { id, hostname, created: now });
      }
      if (taken.size > 0) return { result: { crowded: taken } };
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
  const ids = wanted.id === undefined ? derivedIds(project, hostname, DERIVED_IDS_MAX) : [wanted.id];
  const candidates = owner === undefined ? ids : [...ids, owner];
  const keys = [name, projectKey(project), ...candidates.map((id) => hostKey(project, id))];
  const added = await ledger.change<AddedHost | { owner: string }>(keys, (snapshot) => {
    const id = snapshot.get(name);
    // The name belongs to a host that is not in the snapshot.
    if (id !== '' && !candidates.includes(id)) return { result: { owner: id } };
    const known = id === '' ? undefined : hostAt(snapshot, project, id);
    if (known) return { result: { kind: 'exists', host: known } };
    const taken = wanted.id === undefined ? undefined : hostAt(snapshot, project, wanted.id);
    if (taken) return { result: { kind: 'id_taken', host: taken } };
    const count = parse<ProjectValue>(snapshot.get(projectKey(project)))?.hosts ?? 0;
    const free = ids.find((candidate) => snapshot.get(hostKey(project, candidate)) === '');
    if (count >= limit || free === undefined) return { result: { kind: 'full' } };
    const host = { id: free, hostname, created: wanted.created ?? now };
    const writes = new Map([
      [projectKey(project), JSON.stringify({ hosts: count + 1 } satisfies ProjectValue)],
    ]);
    putHost(writes, project, host);
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
    const host = hostAt(snapshot, project, id);
    if (host === undefined) return { result: { kind: 'unknown' } };
    const ownerId = snapshot.get(name);
    if (ownerId !== '' && ownerId !== id) {
      const other = hostAt(snapshot, project, ownerId);
      return { result: other ? { kind: 'name_taken', host: other } : { owner: ownerId } };
    }
    if (host.hostname === hostname) return { result: { kind: 'renamed', host } };
    const writes = new Map([[hostnameKey(project, host.hostname), '']]);
    putHost(writes, project, { ...host, hostname });
    return { result: { kind: 'renamed', host: { ...host, hostname } }, writes };
  });
  return 'owner' in renamed ? renameHost(ledger, wanted, renamed.owner) : renamed;
}

export async function hostsOfProject(ledger: Ledger, project: string): Promise<Host[]> {
  const found = await ledger.scan('host', project);
  return Array.from(found, ([key, value]) => ({
    id: partsOf(key)[1] ?? '',
    ...(JSON.parse(value) as HostValue),
  })).sort((a, b) => (a.hostname < b.hostname ? -1 : 1));
}

function derivedIds(project: string, hostname: string, length: number): string[] {
  return Array.from({ length }, (_, attempt) => derivedId('host', project, hostname, attempt));
}

function putHost(writes: Map<string, string>, project: string, { id, hostname, created }: Host): void {
  writes.set(hostnameKey(project, hostname), id);
  writes.set(hostKey(project, id), JSON.stringify({ hostname, created } satisfies HostValue));
}

function hostAt(snapshot: Snapshot, project: string, id: string): Host | undefined {
  const value = parse<HostValue>(snapshot.get(hostKey(project, id)));
  return value && { id, ...value };
}
