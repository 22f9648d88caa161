/** Who there is: domains hold projects and users; a role is given in a project, or in a domain for all its projects. */

export const ROLES = ['reader', 'ingest', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/**
 * The role of other processes that ask us who calls: held in the system as a whole, never in a project or domain, and by
 * nobody unless the operator gives it. It may see every secret access key, and nothing else.
 */
export const SYSTEM_ROLE = 'identity';

/** What a user may sign in to: the API (`programmatic`), the console, or both. Set once, when the user is made. */
export const ACCESS_TYPES = ['programmatic', 'console', 'both'] as const;
export type AccessType = (typeof ACCESS_TYPES)[number];

export interface Domain {
  id: string;
  name: string;
  enabled: boolean;
}

export interface Project {
  id: string;
  name: string;
  domain_id: string;
  enabled: boolean;
  created: number;
}

export interface User {
  id: string;
  name: string;
  domain_id: string;
  enabled: boolean;
  access: AccessType;
  password_hash: string;
  created: number;
  /** A token carries the number it was issued under; raising it voids all that are out. */
  token_epoch: number;
  /** Roles by the ID of the project or domain that they are held in. */
  roles: Record<string, Role[]>;
  system_role?: typeof SYSTEM_ROLE;
}

export interface AccessKey {
  /** The access key ID: public, and what a signature names. */
  access: string;
  user_id: string;
  description: string;
  status: 'active' | 'inactive';
  created: number;
  /** The secret access key, encrypted: a signature can only be checked with the key itself, so a hash would not do. */
  sealed_secret: string;
}

/** An access key as anyone may see it who may see it at all. */
export type AccessKeyInfo = Omit<AccessKey, 'sealed_secret'>;
