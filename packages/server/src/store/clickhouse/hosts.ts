/** The hosts of projects, in the ledger. */
import { derivedId } from '../ids.ts';
import type { AddedHost, Host, NewHost, RenamedHost } from '../store.ts';
import { parse } from './append.ts';
import { type HostValue, hostKey, hostnameKey, type ProjectValue, partsOf, projectKey } from './keys.ts';
import type { Ledger, Page } from './ledger.ts';

/** IDs made from a name that may be taken: by a host that was renamed, or by one whose ID a user chose. */
const DERIVED_IDS_MAX = 16;

/** `owner`: the host that was seen to have the name. */
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
  const asked = owner === undefined ? ids : [...ids, owner];
  const keys = [name, projectKey(project), ...asked.map((id) => hostKey(project, id))];
  const added = await ledger.change<AddedHost | { owner: string }>(keys, (page) => {
    const nothing = new Map<string, string>();
    const id = page.get(name);
    // A host with an ID of its own, of which nothing is on the page.
    if (id !== '' && !asked.includes(id)) return { result: { owner: id }, writes: nothing };
    const known = id === '' ? undefined : hostAt(page, project, id);
    if (known) return { result: { kind: 'exists', host: known }, writes: nothing };
    const taken = wanted.id === undefined ? undefined : hostAt(page, project, wanted.id);
    if (taken) return { result: { kind: 'id_taken', host: taken }, writes: nothing };
    const count = parse<ProjectValue>(page.get(projectKey(project)))?.hosts ?? 0;
    const free = ids.find((candidate) => page.get(hostKey(project, candidate)) === '');
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
  const renamed = await ledger.change<RenamedHost | { owner: string }>(keys, (page) => {
    const writes = new Map<string, string>();
    const host = hostAt(page, project, id);
    if (host === undefined) return { result: { kind: 'unknown' }, writes };
    const ownerId = page.get(name);
    if (ownerId !== '' && ownerId !== id) {
      const other = hostAt(page, project, ownerId);
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

function hostAt(page: Page, project: string, id: string): Host | undefined {
  const value = parse<HostValue>(page.get(hostKey(project, id)));
  return value && { id, ...value };
}
