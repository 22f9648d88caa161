import { createHash } from 'node:crypto';

/**
 * The ID of a host, source or followed path (`project` is then its source), made from its name: processes that meet the same new name at the same moment
 * agree on it without asking each other. `attempt` makes another one when the first is taken, which happens
 * only after a rename or an ID that a user chose.
 */
export function derivedId(
  kind: 'host' | 'source' | 'path',
  project: string,
  name: string,
  attempt = 0,
): string {
  const parts = [kind, project, name, attempt];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}
