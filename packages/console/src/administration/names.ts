/** Names of roles and access types, and the properties that the sections share. */
import type { AccessType, Administration, Role } from '../api.ts';

export interface SectionProps {
  administration: Administration;
  reload(): void;
}

export const ACCESS_NAMES: Readonly<Record<AccessType, string>> = {
  both: 'Console and API',
  console: 'Console only',
  programmatic: 'API only',
};

export const ROLES: readonly Role[] = ['reader', 'ingest', 'admin'];

export const ROLE_NAMES: Readonly<Record<Role, string>> = {
  reader: 'reader: view statistics',
  ingest: 'ingest: send log lines',
  admin: 'admin: full access',
};
