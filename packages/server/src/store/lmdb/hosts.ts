/** The hosts of projects: one at a time for administration, all names of a batch at once for ingest. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type AddedHost,
  derivedId,
  type Host,
  type HostnamesToResolve,
  type NewHost,
  type RenamedHost,
} from '../store.ts';
import { nextScope, openProject } from './append.ts';
import type { HostRecord, ProjectRecord, Schema } from './schema.ts';

/** Names that are looked up in one turn of the event loop: some milliseconds. */
const NAMES_PER_TURN = 5_000;
/** New names that one transaction registers: 20 ms. Only a flood or a large import has more of them in a batch. */
const NEW_NAMES_PER_TRANSACTION = 250;

interface NewHosts {
  /** By name. */
  ids: Map<string, string>;
  /** How many more hosts the project may have. */
  room: number;
}

/** Looks up the names and registers new ones with `add`, until none is left or the project is full. */
export async function resolveHosts(
  schema: Schema,
  { project, hostnames, limit }: HostnamesToResolve,
  add: (hostnames: ReadonlySet<string>) => Promise<NewHosts>,
): Promise<(string | null)[]> {
  const ids = new Array<string | null>(hostnames.length).fill(null);
  const registered = new Map<string, string>();
  let room: number | null = null;
  for (;;) {
    const known = schema.projects.get(project);
    const find = known ? await hostFinder(schema, known, hostnames.length) : () => undefined;
    room ??= limit - (known?.hosts ?? 0);
    const newNames = new Set<string>();
    for (const [i, hostname] of hostnames.entries()) {
      if (i % NAMES_PER_TURN === NAMES_PER_TURN - 1) await nextTurn();
      const id = ids[i] ?? registered.get(hostname) ?? find(hostname) ?? null;
      ids[i] = id;
      if (id === null && newNames.size < Math.min(room, NEW_NAMES_PER_TRANSACTION)) newNames.add(hostname);
    }
    if (newNames.size === 0) return ids;
    const added = await add(newNames);
    for (const [hostname, id] of added.ids) registered.set(hostname, id);
    room = added.room;
    // The next lookups must see the names that other processes have registered.
    schema.root.resetReadTxn();
  }
}

/** For many names, reads all hosts into a map: looking up each in the file takes ten times as long. */
async function hostFinder(
  { hostnames }: Schema,
  { scope, hosts }: ProjectRecord,
  names: number,
): Promise<(hostname: string) => string | undefined> {
  if (names < hosts) return (hostname) => hostnames.get([scope, hostname]);
  const ids = new Map<string, string>();
  let after: [number, string] | [number] = [scope];
  for (;;) {
    const range = hostnames.getRange({ start: after, end: [scope + 1], limit: NAMES_PER_TURN });
    let read = 0;
    for (const { key, value } of range) {
      ids.set(key[1], value);
      after = key;
      read++;
    }
    // The last name of a part is the first of the next.
    if (read < NAMES_PER_TURN) return (hostname) => ids.get(hostname);
    await nextTurn();
  }
}

/** Runs inside a write transaction. Registers names in their order until the project is full. */
export function addHosts(
  schema: Schema,
  { project: projectId, limit }: HostnamesToResolve,
  hostnames: ReadonlySet<string>,
  now: number,
): NewHosts {
  const project = openProject(schema, projectId);
  const ids = new Map<string, string>();
  let { hosts } = project;
  for (const hostname of hostnames) {
    // Looked up again inside the transaction: another process may have been faster.
    let id = schema.hostnames.get([project.scope, hostname]);
    if (id === undefined && hosts < limit) {
      id = freeHostId(schema, project, projectId, hostname);
      putHost(schema, project, { id, hostname, created: now });
      hosts++;
    }
    if (id !== undefined) ids.set(hostname, id);
  }
  if (hosts > project.hosts) schema.projects.putSync(projectId, { ...project, hosts });
  return { ids, room: limit - hosts };
}

export function addHost(schema: Schema, wanted: NewHost, now: number): AddedHost {
  const project = openProject(schema, wanted.project);
  // Looked up again inside the transaction: another process may have been faster.
  const found = findHost(schema, project, wanted);
  if (found) return found;
  const host = {
    id: wanted.id ?? freeHostId(schema, project, wanted.project, wanted.hostname),
    hostname: wanted.hostname,
    created: wanted.created ?? now,
  };
  putHost(schema, project, host);
  schema.projects.putSync(wanted.project, { ...project, hosts: project.hosts + 1 });
  return { kind: 'added', host };
}

export function renameHost(schema: Schema, projectId: string, id: string, hostname: string): RenamedHost {
  const project = schema.projects.get(projectId);
  const known = project && schema.hosts.get([project.scope, id]);
  if (project === undefined || known === undefined) return { kind: 'unknown' };
  const idOfName = schema.hostnames.get([project.scope, hostname]);
  const other = idOfName === undefined ? undefined : schema.hosts.get([project.scope, idOfName]);
  if (other && other.id !== id) return { kind: 'name_taken', host: publicHost(other) };
  const renamed = { ...known, hostname };
  schema.hostnames.removeSync([project.scope, known.hostname]);
  schema.hostnames.putSync([project.scope, hostname], id);
  schema.hosts.putSync([project.scope, id], renamed);
  return { kind: 'renamed', host: publicHost(renamed) };
}

export function publicHost({ id, hostname, created }: HostRecord): Host {
  return { id, hostname, created };
}

/** The result if nothing needs to be added. Detects a full project, so that a flood of names writes nothing. */
export function findHost(schema: Schema, project: ProjectRecord, wanted: NewHost): AddedHost | undefined {
  const idOfName = schema.hostnames.get([project.scope, wanted.hostname]);
  const id = idOfName ?? wanted.id;
  const known = id === undefined ? undefined : schema.hosts.get([project.scope, id]);
  if (known === undefined) return project.hosts >= wanted.limit ? { kind: 'full' } : undefined;
  return { kind: idOfName === undefined ? 'id_taken' : 'exists', host: publicHost(known) };
}

function freeHostId(schema: Schema, project: ProjectRecord, projectId: string, hostname: string): string {
  for (let attempt = 0; ; attempt++) {
    const id = derivedId('host', projectId, hostname, attempt);
    if (!schema.hosts.doesExist([project.scope, id])) return id;
  }
}

function putHost(schema: Schema, { scope }: ProjectRecord, host: Host): void {
  schema.hosts.putSync([scope, host.id], { ...host, scope: nextScope(schema), project: scope });
  schema.hostnames.putSync([scope, host.hostname], host.id);
}
