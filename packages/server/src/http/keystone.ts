/** How identity's records look in the answers of Keystone v3. */
import type { TokenDescription } from '../identity/authentication.ts';
import type { AccessKeyInfo, Domain, Project } from '../identity/records.ts';

export interface Catalog {
  /** The address under which clients reach the service; `null`: the one they called. */
  public_url: string | null;
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
        : { domain: named(scope.domain) }),
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
