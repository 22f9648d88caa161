/** What processes look up here that have no identity of their own: one record at a time, by its ID. */
import { rolesIn } from './authentication.ts';
import type { AccessKeyInfo, Domain, Project, Role, User } from './records.ts';
import type { Secrets } from './secrets.ts';
import type { IdentityStore } from './store.ts';

export interface Directory {
  /** By the SHA-256 of the access key ID in hex. The secret of a key that is disabled stays here. */
  key(hash: string): (AccessKeyInfo & { secret: string | null }) | undefined;
  user(id: string): User | undefined;
  project(id: string): Project | undefined;
  domain(id: string): Domain | undefined;
  /** Those in its domain included. */
  roles(user: User, project: Project): readonly Role[];
}

export function createDirectory(store: IdentityStore, secrets: Secrets): Directory {
  return {
    key(hash) {
      const found = store.keyByHash(hash);
      if (found === undefined) return undefined;
      const { sealed_secret, ...key } = found;
      return { ...key, secret: key.status === 'active' ? secrets.open(key.access, sealed_secret) : null };
    },
    user: (id) => store.user(id),
    project: (id) => store.project(id),
    domain: (id) => store.domain(id),
    roles: (user, project) => rolesIn(user, { project }),
  };
}
