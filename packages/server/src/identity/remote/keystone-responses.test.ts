import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { IdentityUnavailable } from '../errors.ts';
import {
  readDomain,
  readKey,
  readProject,
  readRoles,
  readToken,
  readTokenLifetimeMs,
  readUser,
} from './keystone-responses.ts';

/** A token as Keystone 22 writes it. */
const TOKEN = {
  token: {
    methods: ['password'],
    user: {
      domain: { id: 'default', name: 'Default' },
      id: 'u1',
      name: 'reporter',
      password_expires_at: null,
    },
    audit_ids: ['3QF2KV5jRQG-9iLA4dYdig'],
    expires_at: '2026-11-15T04:49:36.000000Z',
    issued_at: '2026-11-15T03:49:36.000000Z',
    project: { domain: { id: 'default', name: 'Default' }, id: 'p1', name: 'shop' },
    is_domain: false,
    roles: [
      { id: '1bd0', name: 'reader' },
      { id: 'ad5a', name: 'member' },
    ],
  },
};

const credential = (blob: object, more: object = {}) => ({
  credential: { id: 'x', type: 'ec2', user_id: 'u1', project_id: 'p1', blob: JSON.stringify(blob), ...more },
});

describe('a token', () => {
  test('has its user, its project, and the roles that wafstat knows', () => {
    expect(readToken(TOKEN)).toEqual({
      caller: {
        user: { id: 'u1', name: 'reporter', domain_id: 'default', roles: { p1: ['reader'] } },
        scope: { project: { id: 'p1', domain_id: 'default' } },
      },
      expires_at: Date.UTC(2026, 10, 15, 4, 49, 36),
    });
    expect(readTokenLifetimeMs(TOKEN)).toBe(3_600_000);
  });

  test('has no roles without a project, whatever it lists', () => {
    const { project: _, ...token } = TOKEN.token;
    const admin = { ...token, roles: [{ name: 'admin' }], system: { all: true } };
    expect(readToken({ token: admin }).caller).toEqual({
      user: { id: 'u1', name: 'reporter', domain_id: 'default', roles: {} },
      scope: { domain: { id: 'default' } },
    });
  });
});

describe('an access key', () => {
  const pair = { access: 'AK', secret: 'SK' };

  test('is for one project, and rejected without one', () => {
    const key = readKey(credential(pair), 'AK');
    expect(key).toMatchObject({ user_id: 'u1', project_id: 'p1' });
    expect(key?.secret.export().toString()).toBe('SK');
    expect(readKey(credential(pair, { project_id: null }), 'AK')).toBe(null);
  });

  test('is rejected if its ID or type differs, or if it has fewer rights than its user', () => {
    expect(readKey(credential(pair), 'OTHER')).toBe(null);
    expect(readKey(credential(pair, { type: 'totp' }), 'AK')).toBe(null);
    expect(readKey(credential(pair, { blob: 'no JSON' }), 'AK')).toBe(null);
    for (const name of ['trust_id', 'app_cred_id', 'access_token_id']) {
      expect(readKey(credential({ ...pair, [name]: 'x' }), 'AK')).toBe(null);
      expect(readKey(credential({ ...pair, [name]: null }), 'AK')).not.toBe(null);
    }
  });
});

test('roles of another project do not count', () => {
  const assignment = (id: string, name: string) => ({ role: { name }, scope: { project: { id } } });
  const body = {
    role_assignments: [
      assignment('p1', 'ingest'),
      assignment('p2', 'admin'),
      { role: { name: 'admin' }, scope: { domain: { id: 'p1' } } },
      { role: { name: 'admin' }, scope: { system: { all: true } } },
    ],
  };
  expect(readRoles(body, 'p1')).toEqual(['ingest']);
});

test('a record is enabled only if it says so', () => {
  for (const enabled of [undefined, false, 'true', 1, null]) {
    expect(readDomain({ domain: { enabled } }).enabled).toBe(false);
    expect(readProject({ project: { enabled, domain_id: 'd' } }).enabled).toBe(false);
    expect(readUser({ user: { enabled, id: 'u', name: 'n', domain_id: 'd' } }).enabled).toBe(false);
  }
});

test('any response is either understood or an IdentityUnavailable', () => {
  const readers = [
    readTokenLifetimeMs,
    readToken,
    (body: unknown) => readKey(body, 'AK'),
    readUser,
    readProject,
    readDomain,
    (body: unknown) => readRoles(body, 'p1'),
  ];
  /** A valid response with one value replaced with anything. */
  const broken = fc
    .tuple(fc.constantFrom(TOKEN, credential({ access: 'AK', secret: 'SK' })), fc.nat(), fc.anything())
    .map(([body, place, value]) => {
      let i = 0;
      const count = JSON.stringify(body, (_, inner) => {
        i++;
        return inner;
      });
      const target = place % i;
      i = 0;
      return JSON.parse(count, (_, inner) => (i++ === target ? value : inner));
    });
  fc.assert(
    fc.property(fc.oneof(fc.anything(), fc.jsonValue(), broken), (body) => {
      for (const read of readers) {
        try {
          read(body);
        } catch (error) {
          expect(error).toBeInstanceOf(IdentityUnavailable);
        }
      }
    }),
    { numRuns: scaled(2_000) },
  );
});
