/** The hosts of projects. */

import { columnsOf, type Database, type Row, type Run } from '../../postgres/database.ts';
import { deletedHostId, derivedId, freeHostId, isDeletedHost } from '../ids.ts';
import { type Hostnames, type NewHosts, resolveHosts as resolve } from '../resolve-hosts.ts';
import type { AddedHost, DeletedHost, Host, HostnamesToResolve, NewHost, RenamedHost } from '../store.ts';
import { changeAllVersions, lockProject, OF_PROJECT } from './coordination.ts';

/** To look up more names, all names of the project are read. */
const NAMES_PER_READ = 1_000;
const NEW_NAMES_PER_TRANSACTION = 1_000;

type HostRow = Host & Row;
const COLUMNS = 'id, hostname, created';

/** The condition of statements that list hosts (see deletedHostId). */
export const NOT_DELETED = "id NOT LIKE 'deleted:%'";

export function resolveHosts(
  database: Database,
  names: HostnamesToResolve,
  now: number,
): Promise<(string | null)[]> {
  return resolve(
    names,
    NEW_NAMES_PER_TRANSACTION,
    () => readHostnames(database, names),
    (newNames) => database.transaction((run) => addHosts(run, names, newNames, now)),
  );
}

async function readHostnames(
  database: Database,
  { project, hostnames }: HostnamesToResolve,
): Promise<Hostnames> {
  const wanted = new Set(hostnames);
  const isFew = wanted.size <= NAMES_PER_READ;
  const rows = await database.run<{ hosts: number; hostname: string | null; id: string }>(
    `SELECT p.hosts, h.hostname, h.id FROM projects p
     LEFT JOIN hosts h ON h.project = p.project ${isFew ? 'AND h.hostname = ANY($2::text[])' : ''}
     WHERE p.project = $1`,
    isFew ? [project, [...wanted]] : [project],
  );
  const ids = new Map(rows.flatMap(({ hostname, id }) => (hostname === null ? [] : [[hostname, id]])));
  return { hosts: rows[0]?.hosts ?? 0, find: (hostname) => ids.get(hostname) };
}

/** Registers names in their order until the project is full. */
async function addHosts(
  run: Run,
  { project, limit }: HostnamesToResolve,
  hostnames: ReadonlySet<string>,
  now: number,
): Promise<NewHosts> {
  const derived = [...hostnames].map((hostname) => derivedId('host', project, hostname));
  const candidates = [...derived, ...derived.map(deletedHostId)];
  const [state, known] = await Promise.all([
    lockProject(run, project),
    run<HostRow>(
      `SELECT ${COLUMNS} FROM hosts WHERE project = $1 AND hostname = ANY($2::text[])
       UNION SELECT ${COLUMNS} FROM hosts WHERE project = $1 AND id = ANY($3::text[])`,
      [project, [...hostnames], candidates],
    ),
  ]);
  const ids = new Map(known.map(({ hostname, id }) => [hostname, id]));
  const taken = new Set(known.map(originalId));
  const added: Host[] = [];
  let room = limit - state.hosts;
  for (const hostname of hostnames) {
    if (ids.has(hostname) || room <= 0) continue;
    const first = derivedId('host', project, hostname);
    // Nearly always, no host has the first one.
    const id = taken.has(first) ? await freeId(run, project, hostname, taken) : first;
    taken.add(id);
    ids.set(hostname, id);
    added.push({ id, hostname, created: now });
    room--;
  }
  await insertHosts(run, project, state.hosts, added);
  return { ids: new Map([...ids].filter(([hostname]) => hostnames.has(hostname))), room };
}

/** The first derived ID that no host has. */
async function freeId(
  run: Run,
  project: string,
  hostname: string,
  taken = new Set<string>(),
): Promise<string> {
  const all = await run<{ id: string }>('SELECT id FROM hosts WHERE project = $1', [project]);
  const ids = new Set([...taken, ...all.map(originalId)]);
  return freeHostId(project, hostname, (id) => ids.has(id));
}

/** Hosts are numbered from 1. Rows of deleted hosts stay, so that no number is used again. */
async function insertHosts(run: Run, project: string, before: number, hosts: readonly Host[]): Promise<void> {
  if (hosts.length === 0) return;
  await Promise.all([
    run('UPDATE projects SET hosts = $2 WHERE project = $1', [project, before + hosts.length]),
    run(
      `INSERT INTO hosts (project, id, number, hostname, created)
       SELECT project, id, (SELECT coalesce(max(number), 0) FROM hosts WHERE project = $1) + i::int, hostname, created
       FROM ${OF_PROJECT}, unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS h(id, hostname, created, i)`,
      [project, ...columnsOf(hosts, 'id', 'hostname', 'created')],
    ),
    run('COMMIT'),
  ]);
}

export async function addHost(database: Database, wanted: NewHost, now: number): Promise<AddedHost> {
  const { project, hostname, limit } = wanted;
  const found = await findHost(database, wanted);
  if (found) return found;
  return database.transaction(async (run) => {
    // Looked up again: another process may have been faster.
    const [state, again] = await Promise.all([lockProject(run, project), findHost({ run }, wanted)]);
    if (again) return again;
    if (state.hosts >= limit) return { kind: 'full' };
    const id = wanted.id ?? (await freeId(run, project, hostname));
    const host = { id, hostname, created: wanted.created ?? now };
    await insertHosts(run, project, state.hosts, [host]);
    return { kind: 'added', host };
  });
}

/** The result if nothing needs to be added. */
async function findHost(
  database: Pick<Database, 'run'>,
  { project, hostname, id, limit }: NewHost,
): Promise<AddedHost | undefined> {
  const rows = await database.run<HostRow & { hosts: number }>(
    `SELECT p.hosts, h.id, h.hostname, h.created FROM projects p
     LEFT JOIN hosts h ON h.project = p.project AND (h.hostname = $2 OR h.id = ANY($3::text[]))
     WHERE p.project = $1`,
    [project, hostname, id === undefined ? [] : [id, deletedHostId(id)]],
  );
  const known = rows.filter((row) => row.id !== null).map(publicHost);
  const byName = known.find((host) => host.hostname === hostname);
  if (byName) return { kind: 'exists', host: byName };
  const byId = known.find((host) => originalId(host) === id);
  if (byId) return { kind: 'id_taken', host: byId };
  return (rows[0]?.hosts ?? 0) >= limit ? { kind: 'full' } : undefined;
}

export function renameHost(
  database: Database,
  { project, id, hostname }: { project: string; id: string; hostname: string },
): Promise<RenamedHost> {
  return database.transaction(async (run) => {
    const [, rows] = await Promise.all([
      lockProject(run, project),
      run<HostRow>(`SELECT ${COLUMNS} FROM hosts WHERE project = $1 AND (id = $2 OR hostname = $3)`, [
        project,
        id,
        hostname,
      ]),
    ]);
    const known = rows.map(publicHost);
    const host = known.find((one) => one.id === id);
    if (host === undefined) return { kind: 'unknown' };
    const other = known.find((one) => one.hostname === hostname);
    if (other && other.id !== id) return { kind: 'name_taken', host: other };
    await run('UPDATE hosts SET hostname = $3 WHERE project = $1 AND id = $2', [project, id, hostname]);
    return { kind: 'renamed', host: { ...host, hostname } };
  });
}

/** The row keeps the number, under an ID and a name that no host can have. */
export function deleteHost(
  database: Database,
  { project, id }: { project: string; id: string },
): Promise<DeletedHost> {
  return database.transaction(async (run) => {
    const [, rows] = await Promise.all([
      lockProject(run, project),
      run<HostRow & { number: number }>(
        `SELECT ${COLUMNS}, number FROM hosts WHERE project = $1 AND id = $2 AND ${NOT_DELETED}`,
        [project, id],
      ),
    ]);
    const [host] = rows;
    if (host === undefined) return { kind: 'unknown' };
    const { number } = host;
    await Promise.all([
      run('UPDATE hosts SET id = $3, hostname = $3 WHERE project = $1 AND id = $2', [
        project,
        id,
        deletedHostId(id),
      ]),
      run('DELETE FROM source_hosts WHERE project = $1 AND host = $2', [project, number]),
      run('UPDATE projects SET hosts = hosts - 1 WHERE project = $1', [project]),
      // Cached responses of all ranges may contain the host.
      changeAllVersions(run, project),
    ]);
    return { kind: 'deleted', host: publicHost(host) };
  });
}

export async function hostsOfProject(database: Database, project: string): Promise<Host[]> {
  const rows = await database.run<HostRow>(
    `SELECT ${COLUMNS} FROM hosts WHERE project = $1 AND ${NOT_DELETED}`,
    [project],
  );
  return rows.map(publicHost).sort((a, b) => (a.hostname < b.hostname ? -1 : 1));
}

/** The ID of a host, even after its deletion. */
function originalId({ id }: { id: string }): string {
  return isDeletedHost({ id }) ? id.slice(deletedHostId('').length) : id;
}

function publicHost({ id, hostname, created }: Host): Host {
  return { id, hostname, created };
}
