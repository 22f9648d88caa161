/** The hosts of projects: one at a time for administration, all names of a batch at once for ingest. */
import { deletedHostId, freeHostId } from '../ids.ts';
import { type Hostnames, NAMES_PER_STEP, type NewHosts } from '../resolve-hosts.ts';
import type { AddedHost, DeletedHost, Host, HostnamesToResolve, NewHost, RenamedHost } from '../store.ts';
import { nextScope, openProject } from './append.ts';
import {
  countChange,
  type HostRecord,
  metaValue,
  nextChanges,
  type ProjectRecord,
  type Schema,
} from './schema.ts';

/** How many new names one transaction registers, in 20 ms. Only a batch of a flood or a large import has more. */
export const NEW_NAMES_PER_TRANSACTION = 250;

/** For many names, reads all hosts into a map: looking up each in the file takes ten times as long. */
export function* readHostnames(
  { projects, hostnames }: Schema,
  wanted: HostnamesToResolve,
): Generator<void, Hostnames> {
  const { scope, hosts } = projects.get(wanted.project) ?? { scope: 0, hosts: 0 };
  if (wanted.hostnames.length < hosts) return { hosts, find: (hostname) => hostnames.get([scope, hostname]) };
  const ids = new Map<string, string>();
  let after: [number, string] | [number] = [scope];
  for (;;) {
    const range = hostnames.getRange({ start: after, end: [scope + 1], limit: NAMES_PER_STEP });
    let read = 0;
    for (const { key, value } of range) {
      ids.set(key[1], value);
      after = key;
      read++;
    }
    // The last name of a part is the first of the next.
    if (read < NAMES_PER_STEP) return { hosts, find: (hostname) => ids.get(hostname) };
    yield;
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
      id = freeId(schema, project, projectId, hostname);
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
    id: wanted.id ?? freeId(schema, project, wanted.project, wanted.hostname),
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
  schema.meta.putSync('renamedHosts', metaValue(schema, 'renamedHosts') + 1);
  return { kind: 'renamed', host: publicHost(renamed) };
}

/** The scope stays assigned: the counts of the host are part of the file until retention frees them. */
export function deleteHost(schema: Schema, projectId: string, id: string): DeletedHost {
  const project = schema.projects.get(projectId);
  const known = project && schema.hosts.get([project.scope, id]);
  if (project === undefined || known === undefined) return { kind: 'unknown' };
  const { scope } = project;
  const name = deletedHostId(id);
  schema.hosts.removeSync([scope, id]);
  schema.hostnames.removeSync([scope, known.hostname]);
  schema.hosts.putSync([scope, name], { ...known, id: name, hostname: name });
  schema.hostnames.putSync([scope, name], name);
  schema.projects.putSync(projectId, { ...project, hosts: project.hosts - 1 });
  for (const { value } of schema.sources.getRange({ start: [scope], end: [scope + 1] })) {
    schema.sourceHosts.removeSync([value.number, id]);
  }
  schema.meta.putSync('deletedHosts', nextChanges(metaValue(schema, 'deletedHosts')));
  countChange(schema);
  return { kind: 'deleted', host: publicHost(known) };
}

export function publicHost({ id, hostname, created }: HostRecord): Host {
  return { id, hostname, created };
}

/** The result if nothing needs to be added. Detects a full project, so that a flood of names writes nothing. */
export function findHost(schema: Schema, project: ProjectRecord, wanted: NewHost): AddedHost | undefined {
  const idOfName = schema.hostnames.get([project.scope, wanted.hostname]);
  const id = idOfName ?? wanted.id;
  const known =
    id === undefined
      ? undefined
      : (schema.hosts.get([project.scope, id]) ?? schema.hosts.get([project.scope, deletedHostId(id)]));
  if (known === undefined) return project.hosts >= wanted.limit ? { kind: 'full' } : undefined;
  return { kind: idOfName === undefined ? 'id_taken' : 'exists', host: publicHost(known) };
}

function freeId(schema: Schema, { scope }: ProjectRecord, projectId: string, hostname: string): string {
  return freeHostId(projectId, hostname, (id) =>
    [id, deletedHostId(id)].some((taken) => schema.hosts.doesExist([scope, taken])),
  );
}

function putHost(schema: Schema, { scope }: ProjectRecord, host: Host): void {
  schema.hosts.putSync([scope, host.id], { ...host, scope: nextScope(schema), project: scope });
  schema.hostnames.putSync([scope, host.hostname], host.id);
}
