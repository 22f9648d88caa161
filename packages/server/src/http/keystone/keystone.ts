/** How identity's records look in the answers of Keystone v3. */
import type { TokenDescription } from '../../identity/authentication.ts';
import type { AccessKeyInfo, Domain, Project, Role, User } from '../../identity/records.ts';

export interface Catalog {
  /** The address under which clients reach the service; `null`: the one they called. */
  publicUrl: string | null;
  region: string;
}

export function tokenBody(description: TokenDescription, catalog: object[] | null) {
  const { token, user, userDomain, scope, roles } = description;
  const named = ({ id, name }: { id: string; name: string }) => ({ id, name });
  return {
    token: {
      methods: ['password'],
      issued_at: keystoneTime(token.issued_at),
      expires_at: keystoneTime(token.expires_at),
      user: { ...named(user), domain: named(userDomain), password_expires_at: null },
      ...('project' in scope
        ? { project: { ...named(scope.project), domain: named(scope.domain) } }
        : 'domain' in scope
          ? { domain: named(scope.domain) }
          : { system: { all: true } }),
      roles: roles.map((name) => ({ id: name, name })),
      audit_ids: [token.id],
      ...(catalog === null ? {} : { catalog }),
    },
  };
}

/** The waf endpoint is the bare base address: clients put `/v1/...` behind it. */
export function catalogEntries(base: string, region: string): object[] {
  const entry = (type: string, url: string) => ({
    id: type,
    type,
    name: type,
    endpoints: [{ id: `${type}-public`, interface: 'public', region, region_id: region, url }],
  });
  return [entry('identity', `${base}/identity/v3`), entry('waf', base)];
}

export function projectBody({ id, name, domain_id, enabled }: Project) {
  return { id, name, domain_id, enabled, description: '', is_domain: false, parent_id: domain_id, tags: [] };
}

export function domainBody({ id, name, enabled }: Domain) {
  return { id, name, enabled, description: '' };
}

/** `access` is ours: what the user may sign in to. */
export function userBody({ id, name, domain_id, enabled, access }: User) {
  return { id, name, domain_id, enabled, access, password_expires_at: null, options: {} };
}

export function roleAssignmentBody(user: User, project: Project, role: Role) {
  const { id, name } = project;
  return {
    role: { id: role, name: role },
    scope: { project: { id, name, domain: { id: project.domain_id } } },
    user: { id: user.id, name: user.name, domain: { id: user.domain_id } },
  };
}

/** An access key as Keystone's credentials are; `status` is ours, and theirs have always a secret. */
export function ec2CredentialBody(
  id: string,
  { access, secret, user_id, status }: AccessKeyInfo & { secret: string | null },
) {
  const blob = JSON.stringify(secret === null ? { access } : { access, secret });
  return { id, type: 'ec2', blob, user_id, project_id: null, status };
}

export function credentialBody({ access, user_id, description, status, created }: AccessKeyInfo) {
  return { access, user_id, description, status, create_time: keystoneTime(created) };
}

export function versionBody(href: string) {
  return {
    id: 'v3.6',
    status: 'stable',
    updated: '2016-04-04T00:00:00Z',
    'media-types': [{ base: 'application/json', type: 'application/vnd.openstack.identity-v3+json' }],
    links: [{ rel: 'self', href }],
  };
}

function keystoneTime(time: number): string {
  return new Date(time).toISOString().replace('Z', '000Z');
}
