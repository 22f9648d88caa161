/** Domains contain projects and users. A role applies to one project, or to a domain and all its projects. */
import { csv } from '../csv.ts';

export const ROLES = ['reader', 'ingest', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Where a user may sign in: the API (`programmatic`), the console, or both. Set when the user is created. */
export const ACCESS_TYPES = ['programmatic', 'console', 'both'] as const;
type AccessType = (typeof ACCESS_TYPES)[number];

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
  /** Tokens and sessions carry the epoch they were issued in; raising it revokes all of them. */
  token_epoch: number;
  /** Roles by the ID of their project or domain. */
  roles: Record<string, Role[]>;
}

export interface AccessKey {
  /** The access key ID, which is public. */
  access: string;
  user_id: string;
  description: string;
  status: 'active' | 'inactive';
  created: number;
  /** The secret access key, encrypted: checking a signature needs the secret, so a hash is not enough. */
  sealed_secret: string;
}

/** When an alert opens an incident. `report`: no incident, but a report each week. */
export type AlertRule =
  | {
      kind: 'threshold';
      attacks: number;
      within_s: number;
      category?: string;
      host?: string;
      /** Only attacks that the log does not report as blocked. */
      not_blocked?: true;
    }
  | { kind: 'spike'; sensitivity: number; category?: string; host?: string }
  | { kind: 'errors'; percent: number; within_s: number; host?: string }
  | { kind: 'dropped'; percent: number; within_s: number }
  | { kind: 'silent'; source: string; for_s: number }
  /** `minute` of the local week, which begins on Monday. */
  | { kind: 'report'; minute: number; timezone: string };

export interface Alert {
  id: string;
  project_id: string;
  name: string;
  rule: AlertRule;
  channel: 'webhook' | 'mail';
  /** What everyone may see: the mail address, or the origin of the webhook, whose path is often a secret. */
  target: string;
  /** The URL of the webhook and the secret of its signature, encrypted. */
  sealed?: string;
  created: number;
}

/** The time from open to close of one alert. A report is an incident that is closed from the start. */
export interface Incident {
  id: string;
  alert_id: string;
  since: number;
  until: number | null;
  /** Attacks in the window when it opened. */
  attacks: number | null;
  /** Attacks from open to close, once it is closed. */
  total: number | null;
  usual: number | null;
  percent: number | null;
  host: string | null;
  source: string | null;
  category: string | null;
  rule: string | null;
  /** First that of `open`, then that of `closed`. */
  deliveries: Delivery[];
}

/** Recorded before it is sent. Its outcome is unknown while it is `sending`. */
export interface Delivery {
  event: 'open' | 'closed' | 'report';
  status: 'waiting' | 'sending' | 'delivered' | 'failed';
  attempts: number;
  /** When it was recorded: retries end a day later. */
  recorded: number;
  /** When to send it next, or when it ended. */
  at: number;
  /** Why the last attempt failed. */
  error?: string;
}

/** What happened at a time, such as a release or a change of rules: a line in the charts. */
export interface Annotation {
  id: string;
  project_id: string;
  /** Milliseconds since the epoch. */
  time: number;
  text: string;
  /** An `http` or `https` URL. */
  link: string | null;
}

/** The process that evaluates the alerts of the installation. */
export interface Lease {
  owner: string;
  until: number;
}

/** An access key without its secret. */
export type AccessKeyInfo = Omit<AccessKey, 'sealed_secret'>;

/** The roles that apply in a project or domain; a project inherits those of its domain. */
export function rolesIn(
  user: Pick<User, 'roles'>,
  scope: { project: Pick<Project, 'id' | 'domain_id'> } | { domain: Pick<Domain, 'id'> },
): readonly Role[] {
  if (!('project' in scope)) return user.roles[scope.domain.id] ?? [];
  const own = user.roles[scope.project.id];
  const inherited = user.roles[scope.project.domain_id];
  return own && inherited ? [...new Set([...own, ...inherited])] : (own ?? inherited ?? []);
}

export function administersDomain(user: Pick<User, 'roles'>, domainId: string): boolean {
  return user.roles[domainId]?.includes('admin') ?? false;
}

/** The key file of the interface specification. */
export function keyFileCsv(userName: string, { access, secret }: { access: string; secret: string }): string {
  // Plain newlines, so that `cut -d, -f3` returns the secret without a carriage return.
  return csv(['User Name', 'Access Key Id', 'Secret Access Key'], [[userName, access, secret]]).replaceAll(
    '\r\n',
    '\n',
  );
}
