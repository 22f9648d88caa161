/** Names of roles, access types and states, and the properties that the sections share. */
import type { AccessType, Administration, Role } from '../api.ts';
import { StateLabel } from '../parts/table.tsx';

export interface SectionProps {
  administration: Administration;
  reload(): void;
}

export function Enabled({ enabled }: { enabled: boolean }) {
  return <StateLabel kind={enabled ? 'active' : 'off'} text={enabled ? 'Enabled' : 'Disabled'} />;
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
