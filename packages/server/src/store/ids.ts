/** IDs of hosts, sources and followed paths. */
import { createHash } from 'node:crypto';

/**
 * The ID of a host, a source or a followed path (whose `parent` is its source), derived from the name: processes that
 * register the same new name at the same time agree without coordination. `attempt` yields another ID if the first is
 * taken, which only happens after a rename, or if a user chose that ID.
 */
export function derivedId(
  kind: 'host' | 'source' | 'path',
  parent: string,
  name: string,
  attempt = 0,
): string {
  const parts = [kind, parent, name, attempt];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

/** The first derived ID that no host has. */
export function freeHostId(project: string, hostname: string, isTaken: (id: string) => boolean): string {
  for (let attempt = 0; ; attempt++) {
    const id = derivedId('host', project, hostname, attempt);
    if (!isTaken(id)) return id;
  }
}

/** ID and name under which stores keep a deleted host, so that no other host gets its ID or number. Not a valid ID or name. */
export function deletedHostId(id: string): string {
  return `deleted:${id}`;
}

export function isDeletedHost({ id }: { id: string }): boolean {
  return id.startsWith('deleted:');
}
