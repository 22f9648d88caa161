import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { FakeKeystone } from '../../../../../test/fake-keystone.ts';
import { openRemoteIdentity, type RemoteIdentity } from './remote-identity.ts';

const HOUR_MS = 3_600_000;
/** The default limit of uWSGI; a proxy in front of it responds 502. */
const HEADER_LENGTH_MAX = 4_096;
const clock = { now: 0 };
let keystone: FakeKeystone;
let remote: RemoteIdentity;
let token: () => string;

beforeEach(async () => {
  clock.now = Date.UTC(2026, 6, 1);
  const now = () => clock.now;
  keystone = new FakeKeystone(now);
  await keystone.start();
  keystone.addUser('service', 'password', { system: ['reader'] });
  const shop = keystone.addProject('shop');
  const alice = keystone.addUser('alice', 'password', { [shop.id]: ['reader'] });
  token = () => keystone.newToken(alice, shop.id);
  const user = { name: 'service', domain: 'Default', password: 'password' };
  remote = openRemoteIdentity({ baseUrl: keystone.address, user, cacheTtlMs: 60_000, now });
});

afterEach(async () => {
  remote.close();
  await keystone.stop();
});

const logins = () => keystone.calls.filter((line) => line === 'POST /v3/auth/tokens').length;

test('the token of the service user is renewed one minute before it expires', async () => {
  await remote.check();
  clock.now += HOUR_MS - 60_001;
  await remote.authenticator.checkToken(token());
  expect(logins()).toBe(1);
  clock.now += 1;
  expect(await remote.authenticator.checkToken(token())).toMatchObject({ user: { name: 'alice' } });
  expect(logins()).toBe(2);
});

test('a cached token is rejected when it expires', async () => {
  const text = token();
  clock.now += HOUR_MS - 1;
  expect(await remote.authenticator.checkToken(text)).toMatchObject({ user: { name: 'alice' } });
  const before = keystone.calls.length;
  clock.now += 1;
  expect(await remote.authenticator.checkToken(text)).toBe('expired');
  expect(keystone.calls.length).toBe(before);
});

test('a request on an idle connection that the service has closed is retried', async () => {
  for (let i = 0; i < 20; i++) {
    expect(await remote.authenticator.checkToken(token())).toMatchObject({ user: { name: 'alice' } });
    keystone.server.closeIdleConnections();
  }
});

test('concurrent calls over the limit are refused, not queued', async () => {
  // A slow machine may need longer for so many connections than a lookup may take.
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(new AbortController().signal);
  onTestFinished(() => timeout.mockRestore());
  const texts = Array.from({ length: 300 }, (_, i) => `unknown ${i}`);
  const settled = await Promise.allSettled(texts.map(async (text) => remote.authenticator.checkToken(text)));
  const refused = settled.filter(({ status }) => status === 'rejected');
  expect(refused.length).toBe(300 - 256);
  expect(String((refused[0] as PromiseRejectedResult).reason)).toMatch(/256 calls to .* are in progress/);
  // The service is available, so the next call succeeds.
  expect(await remote.authenticator.checkToken(token())).toMatchObject({ user: { name: 'alice' } });
});

test('an error response to one call does not affect the next: otherwise anyone could lock out all users', async () => {
  await remote.check();
  keystone.failure = ({ headers }) =>
    String(headers['x-subject-token']).length > HEADER_LENGTH_MAX ? 502 : undefined;
  const longToken = 'x'.repeat(HEADER_LENGTH_MAX + 1);
  await expect(remote.authenticator.checkToken(longToken)).rejects.toThrow(/responded 502 to GET/);
  expect(await remote.authenticator.checkToken(token())).toMatchObject({ user: { name: 'alice' } });
});
