/** Who there is: domains hold projects and users; a role is given in a project, or in a domain for all its projects. */

export const ROLES = ['reader', 'ingest', 'admin'] as const;
export type Role = (typeof ROLES)[number];

export interface Domain {
  id: string;
  name: string;
}

export interface Project {
  id: string;
  name: string;
  domain_id: string;
  created: number;
}

export interface User {
  id: string;
  name: string;
  domain_id: string;
  password_hash: string;
  created: number;
  /** A token carries the number it was issued under; raising it voids all that are out. */
  token_epoch: number;
  /** Roles by the ID of the project or domain that they are held in. */
  roles: Record<string, Role[]>;
}
