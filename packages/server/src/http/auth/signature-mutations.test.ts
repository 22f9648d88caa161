/**
 * Modified signed requests. They are sent over real sockets, because `inject` would normalize them. If a signed part
 * changed, the request is refused; if its meaning is the same, it gets the same response, or that of a replayed push.
 */
import { createHash, createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canonicalRequest, sdkDate, sign } from '@wafstat/signer';
import { scopedKey, scopedStringToSign } from '@wafstat/signer/scoped';
import fc from 'fast-check';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import type { Store } from '../../store/store.ts';
import { createApp } from '../app.ts';

const RUNS = scaled(200);
const START = Date.UTC(2026, 6, 1);
const HOUR_MS = 3_600_000;
const HOST = 'waf.example.com';
/** The clock moves between two cases by more than the allowed skew of a signature. */
const CASE_MS = 16 * 60_000;
const MUTANTS_MAX = 5;

let directory: string;
let identity: Identity;
let app: FastifyInstance;
let store: Store;
let project: string;
let otherProject: string;
let key: { access: string; secret: string };
let otherKey: { access: string; secret: string };
const clock = { now: START };

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-mutations-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
  const { administration } = identity;
  const names = { domain: 'default', project: 'default', user: 'admin' };
  project = (await administration.bootstrap(names, 'password')).project.id;
  otherProject = (await administration.addProject(administration.domainNamed('default').id, 'other')).id;
  const user = administration.userNamed('admin');
  key = await administration.addKey(user.id, '');
  otherKey = await administration.addKey(user.id, '');
  store = memoryStore(() => clock.now);
  for (const id of ['h1', 'h2'])
    await store.addHost({ project, hostname: `${id}.example.com`, id, limit: 9 });
  const event = { time: START - HOUR_MS / 2, hostId: 'h1', request: true, attack: 'xss' as const, count: 7 };
  await store.append({ project, source: { name: 's0', format: 'events' }, events: [event], dropped: {} });
  app = await createApp({
    store,
    identity,
    now: () => clock.now,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 3_650 * 24 * HOUR_MS, hostsMax: 9 },
    admission: patientAdmission(),
    logger: false,
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
});

afterAll(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

type Header = readonly [name: string, value: string];

interface Wire {
  method: string;
  path: string;
  query: readonly string[];
  headers: readonly Header[];
  body: string;
}

type Variant = 'plain' | 'scoped';
const SCOPE = { region: 'eu-de', service: 'waf' };

const hmac = (secret: string | Uint8Array, text: string) =>
  createHmac('sha256', secret).update(text).digest();
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

async function signed(target: Omit<Wire, 'headers'>, variant: Variant): Promise<Wire> {
  const { method, path, query, body } = target;
  const extra = { 'X-Project-Id': project, 'Content-Type': 'text/plain' };
  const date = sdkDate(clock.now);
  const added =
    variant === 'plain'
      ? await sign({ method, url: `http://${HOST}${path}?${query.join('&')}`, headers: extra, body }, key, {
          now: () => clock.now,
        })
      : { 'X-Sdk-Date': date, Authorization: scopedAuthorization(target, extra, date) };
  return { ...target, headers: Object.entries({ Host: HOST, ...extra, ...added }) };
}

function scopedAuthorization(
  { method, path, query, body }: Omit<Wire, 'headers'>,
  extra: Record<string, string>,
  date: string,
): string {
  const scope = { date: date.slice(0, 8), ...SCOPE };
  const headers = { Host: HOST, ...extra, 'X-Sdk-Date': date };
  const bodyHash = sha256(body);
  const hash = sha256(canonicalRequest({ method, path, query: query.join('&'), headers, bodyHash }));
  const signature = hmac(scopedKey(key.secret, scope, hmac), scopedStringToSign(date, scope, hash));
  return (
    `SDK-HMAC-SHA256 Credential=${key.access}/${scope.date}/${scope.region}/${scope.service}/sdk_request, ` +
    `SignedHeaders=content-type;host;x-project-id;x-sdk-date, Signature=${signature.toString('hex')}`
  );
}

/** Latin-1, so that each character is one byte. */
function bytesOf({ method, path, query, headers, body }: Wire): string {
  const target = query.length === 0 ? path : `${path}?${query.join('&')}`;
  const length: Header[] = body === '' ? [] : [['Content-Length', String(body.length)]];
  const lines = [...headers, ...length].map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${target} HTTP/1.1\r\n${lines.join('')}Connection: close\r\n\r\n${body}`;
}

interface Response {
  /** 0 if the connection ended without a response. */
  status: number;
  body: string;
}

/**
 * `end` half-closes the connection, so that a truncated request ends. Node.js then drops a response that is not ready, so
 * complete requests are sent without it.
 */
function send(bytes: string, ending: 'none' | 'end' = 'none'): Promise<Response> {
  const { port } = app.server.address() as AddressInfo;
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let received = '';
    socket.setEncoding('latin1').on('data', (text: string) => {
      received += text;
    });
    // The server may close the connection while the test still writes.
    socket.on('error', () => {});
    socket.on('close', () => {
      const [head = '', body = ''] = received.split('\r\n\r\n', 2);
      resolve({ status: Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1] ?? 0), body });
    });
    socket.write(bytes, 'latin1');
    if (ending === 'end') socket.end();
  });
}

type Mutate = (wire: Wire, at: number) => Wire;

const withHeader = (wire: Wire, name: string, change: (value: string) => string): Wire => ({
  ...wire,
  headers: wire.headers.map(([each, value]) =>
    each.toLowerCase() === name ? [each, change(value)] : [each, value],
  ),
});
const withAuthorization = (wire: Wire, change: (value: string) => string) =>
  withHeader(wire, 'authorization', change);
const pick = <T>(values: readonly T[], at: number): T => values[at % values.length] as T;
/** Replaces one character with another of the same kind. */
const withAnother = (text: string, at: number, kind: string): string => {
  const places = [...text].flatMap((character, i) => (kind.includes(character) ? [i] : []));
  const place = pick(places, at);
  const next = pick([...kind.replace(text[place] ?? '', '')], Math.floor(at / places.length));
  return text.slice(0, place) + next + text.slice(place + 1);
};
const encoded = (text: string, at: number): string => {
  // Not within an escape, which would change the meaning.
  const letters = [...text.matchAll(/%..|([a-z0-9])/g)].flatMap(({ 1: letter, index }) =>
    letter ? [index] : [],
  );
  const place = pick(letters, at);
  const hex = text.charCodeAt(place).toString(16);
  return `${text.slice(0, place)}%${at % 2 ? hex : hex.toUpperCase()}${text.slice(place + 1)}`;
};
const shuffled = <T>(values: readonly T[], at: number): T[] => {
  const first = at % values.length;
  return [...values.slice(first), ...values.slice(0, first)].reverse();
};
const HEX = '0123456789abcdef';
const SIGNED_EXTRA = ['host', 'x-project-id', 'content-type', 'x-sdk-date'];

/** The same meaning: a 200, with the same body unless it is a push. */
const HARMLESS: Record<string, Mutate> = {
  'header names in another case': (wire, at) => ({
    ...wire,
    headers: wire.headers.map(([name, value]) => [at % 2 ? name.toUpperCase() : name.toLowerCase(), value]),
  }),
  'headers in another order': (wire, at) => ({ ...wire, headers: shuffled(wire.headers, at) }),
  'blanks around a header': (wire, at) =>
    withHeader(wire, pick(SIGNED_EXTRA, at), (value) => `${pick(['', ' ', '\t '], at)}${value} \t`),
  'another header, unsigned': (wire, at) => ({ ...wire, headers: [...wire.headers, [`X-Other-${at}`, 'x']] }),
  'parameters in another order': (wire, at) => ({ ...wire, query: shuffled(wire.query, at) }),
  'empty parameters': (wire, at) => ({
    ...wire,
    query: wire.query.flatMap((pair, i) => (i === at % wire.query.length ? ['', pair] : [pair])),
  }),
  'an encoded letter in the path': (wire, at) => ({ ...wire, path: encoded(wire.path, at) }),
  'an encoded letter in the query': (wire, at) => ({
    ...wire,
    query: wire.query.map((pair, i) => (i === at % wire.query.length ? encoded(pair, at) : pair)),
  }),
  'the default port': (wire, at) =>
    withHeader(wire, 'host', (value) => `${value}:${pick(['80', '443'], at)}`),
  'a slash at the end of the path': (wire) => ({ ...wire, path: `${wire.path}/` }),
  'signed headers listed twice': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.replace('SignedHeaders=', `SignedHeaders=${pick(SIGNED_EXTRA, at)};`),
    ),
  'signed headers in capitals': (wire) =>
    withAuthorization(wire, (value) =>
      value.replace(/SignedHeaders=[^,]+/, (list) => list.replace(/x-/g, 'X-')),
    ),
  'fields of Authorization in another order': (wire) =>
    withAuthorization(wire, (value) =>
      value.replace(
        /(SignedHeaders=[^,]+), (Signature=\w+)/,
        (_, names, signature) => `${signature},${names}`,
      ),
    ),
};

/** A change of a signed part or of the signature: a 400 or 401. */
const HARMFUL: Record<string, Mutate> = {
  'another value in the query': (wire, at) => ({
    ...wire,
    query: wire.query.map((pair, i) =>
      i === at % wire.query.length ? withAnother(`${pair}1`, at, '0123456789') : pair,
    ),
  }),
  'a parameter more': (wire, at) => ({
    ...wire,
    query: [...wire.query, pick(['x=1', 'hosts=h2', 'x', '%00=', '+', 'from=1', '=', '__proto__=1'], at)],
  }),
  'a parameter less': (wire, at) => ({
    ...wire,
    query: wire.query.filter((_, i) => i !== at % wire.query.length),
  }),
  'a parameter twice': (wire, at) => ({ ...wire, query: [...wire.query, pick(wire.query, at)] }),
  'an encoding that is encoded': (wire, at) => ({
    ...wire,
    query: wire.query.map((pair, i) =>
      i === at % wire.query.length ? encoded(pair, at).replace('%', '%25') : pair,
    ),
  }),
  'another signed header': (wire, at) =>
    withHeader(wire, pick(SIGNED_EXTRA, at), (value) => withAnother(value, at, 'abcdeipx0123456789')),
  'a signed header missing': (wire, at) => ({
    ...wire,
    headers: wire.headers.filter(
      ([name]) => name.toLowerCase() !== pick(['x-project-id', 'content-type', 'x-sdk-date'], at),
    ),
  }),
  'a signed header twice': (wire, at) => ({
    ...wire,
    headers: [...wire.headers, [pick(['X-Project-Id', 'X-Sdk-Date'], at), pick(['x', '', ' '], at)]],
  }),
  'another moment': (wire, at) =>
    withHeader(wire, 'x-sdk-date', () => sdkDate(clock.now + ((at % 2_000) + 1) * 1_000 * (at % 2 ? 1 : -1))),
  'another body': (wire, at) => ({
    ...wire,
    body: wire.body === '' ? 'x' : withAnother(wire.body, at, '0123456789'),
  }),
  'a longer body': (wire, at) => ({
    ...wire,
    body: `${wire.body}${pick(['\n', ' ', '\0', wire.body || 'x'], at)}`,
  }),
  'a header of the list missing': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.replace(new RegExp(`(?<=[=;])${pick(SIGNED_EXTRA, at)}[;,]`), (found) =>
        found.endsWith(',') ? ',' : '',
      ),
    ),
  'a header more in the list': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.replace(
        'SignedHeaders=',
        `SignedHeaders=${pick(['connection', 'x-none', '', ' ', '__proto__'], at)};`,
      ),
    ),
  'another digit of the signature': (wire, at) =>
    withAuthorization(wire, (value) => value.slice(0, -64) + withAnother(value.slice(-64), at, HEX)),
  'a shorter signature': (wire, at) => withAuthorization(wire, (value) => value.slice(0, -1 - (at % 64))),
  'a longer signature': (wire, at) => withAuthorization(wire, (value) => `${value}${pick([...HEX], at)}`),
  'a signature in capitals': (wire) =>
    withAuthorization(wire, (value) => `${value.slice(0, -64)}${value.slice(-64).toUpperCase()}g`),
  'another key': (wire) => withAuthorization(wire, (value) => value.replace(key.access, otherKey.access)),
  'an unknown key': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.replace(key.access, withAnother(key.access, at, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789')),
    ),
  'no key': (wire) => withAuthorization(wire, (value) => value.replace(key.access, '')),
  'another algorithm': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.replace(
        'SDK-HMAC-SHA256',
        pick(['SDK-HMAC-SHA1', 'sdk-hmac-sha256', 'AWS4-HMAC-SHA256', 'Basic', ''], at),
      ),
    ),
  'another scope': (wire, at) =>
    withAuthorization(wire, (value) =>
      value.includes('Access=')
        ? value.replace(
            /Access=(\w+)/,
            `Credential=$1/${sdkDate(clock.now).slice(0, 8)}/eu-de/waf/sdk_request`,
          )
        : pick(
            [
              value.replace('eu-de', 'eu-nl'),
              value.replace('/waf/', '/ecs/'),
              value.replace('/sdk_request', '/aws4_request'),
              value.replace('/eu-de/', '//eu-de/'),
              value.replace(/\/\d{8}\//, '/20000101/'),
              value.replace(/Credential=(\w+)[^,]*/, 'Access=$1'),
            ],
            at,
          ),
    ),
};

/** Another path or method, which may not exist: refused too. */
const ELSEWHERE: Record<string, Mutate> = {
  'another method': (wire, at) => ({
    ...wire,
    method: pick(
      ['PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS', 'get', 'PROPFIND', wire.body ? 'GET' : 'POST'],
      at,
    ),
  }),
  'another project': (wire) => ({ ...wire, path: wire.path.replace(project, otherProject) }),
  'another path': (wire, at) => ({
    ...wire,
    path: pick(
      [
        `/${wire.path}`,
        wire.path.replace('/v1/', '/v1//'),
        wire.path.replace('/v1/', '/v1/./'),
        wire.path.replace('/v1/', '/x/../v1/'),
        wire.path.replace('/v1/', '/v1%2F'),
        wire.path.toUpperCase(),
        `${wire.path}%00`,
        `${wire.path};x`,
        wire.path.replace('timeline', 'attack/type'),
        `${wire.path}//`,
      ],
      at,
    ),
  }),
};

const classes = { harmless: HARMLESS, harmful: HARMFUL, elsewhere: ELSEWHERE };
const named = fc.oneof(
  ...(Object.keys(classes) as (keyof typeof classes)[]).map((kind) =>
    fc.record({
      kind: fc.constant(kind),
      name: fc.constantFrom(...Object.keys(classes[kind])),
      at: fc.nat(100_000),
    }),
  ),
);
const variant = fc.constantFrom<Variant>('plain', 'scoped');
const target = fc.constantFrom('timeline', 'distribution', 'ingest');

function targetOf(name: string): Omit<Wire, 'headers'> {
  const range = [`from=${START - HOUR_MS}`, `to=${START}`];
  const statistics = `/v1/${project}/waf/event`;
  if (name === 'timeline') {
    const query = [...range, 'timezone=%2B08%3a00', 'hosts=h1', 'hosts=h2'];
    return { method: 'GET', path: `${statistics}/timeline`, query, body: '' };
  }
  if (name === 'distribution')
    return { method: 'GET', path: `${statistics}/attack/type`, query: [...range, 'hosts=h1%2Ch2'], body: '' };
  const body = `{"time":${START},"host":"h1.example.com"}\n`;
  return { method: 'POST', path: `/ingest/v1/${project}`, query: ['source=s1', 'format=events'], body };
}

/** The response to a push that is sent again with the same signature. */
const REPLAYED = { accepted: 0, dropped: {}, first_drops: [], without_host: 0, duplicate: true };

async function counted(): Promise<number> {
  const [requests] = await store.count({ project, edges: [0, clock.now + 24 * HOUR_MS], rows: 'timeline' });
  return requests[0] ?? 0;
}

test('a modified signed request is refused, unless its meaning is the same', async () => {
  const mutants = fc.array(named, { minLength: 1, maxLength: MUTANTS_MAX });
  let pushed = await counted();
  await fc.assert(
    fc.asyncProperty(target, variant, mutants, async (name, by, some) => {
      clock.now += CASE_MS;
      const original = await signed(targetOf(name), by);
      const right = await send(bytesOf(original));
      expect(right.status, right.body).toBe(200);
      if (name === 'ingest') pushed++;
      for (const { kind, name: mutation, at } of some) {
        const bytes = bytesOf(classes[kind][mutation]?.(original, at) ?? original);
        // Some mutations do not change every request.
        if (kind !== 'harmless' && bytes === bytesOf(original)) continue;
        const { status, body } = await send(bytes);
        if (kind === 'harmless') {
          const expected = name === 'ingest' ? { status: 200, body: JSON.stringify(REPLAYED) } : right;
          expect({ status, body }, `${mutation}:\n${bytes}`).toEqual(expected);
        } else if (kind === 'harmful') {
          expect([400, 401], `${mutation}: ${status} ${body}\n${bytes}`).toContain(status);
        } else {
          expect([400, 401, 403, 404, 405], `${mutation}: ${status} ${body}\n${bytes}`).toContain(status);
        }
      }
      expect(await counted(), 'the events of refused and replayed requests').toBe(pushed);
    }),
    { numRuns: RUNS },
  );
});

test('a signed request with any bytes changed is refused or gets the same response', async () => {
  const edit = fc.tuple(
    fc.nat(),
    fc.nat(3),
    fc.oneof(
      fc.string({ unit: fc.constantFrom(...' \t\r\n\0:;,=&%/?#+"A0z\x7f\x80\xff'), maxLength: 3 }),
      fc.constantFrom('\r\n', '%2', '%25', '%00', ', ', '\r\nX-A: b', ' HTTP/1.1', '?', '%0d%0a', '..', '//'),
    ),
  );
  const edits = fc.array(fc.array(edit, { minLength: 1, maxLength: 2 }), {
    minLength: 1,
    maxLength: MUTANTS_MAX,
  });
  // Not ingest: its response is the same for any body of one event.
  await fc.assert(
    fc.asyncProperty(fc.constantFrom('timeline', 'distribution'), variant, edits, async (name, by, some) => {
      clock.now += CASE_MS;
      const original = bytesOf(await signed(targetOf(name), by));
      const right = await send(original);
      expect(right.status, right.body).toBe(200);
      for (const changes of some) {
        let bytes = original;
        for (const [at, length, text] of changes) {
          const from = at % bytes.length;
          bytes = bytes.slice(0, from) + text + bytes.slice(from + length);
        }
        const response = await send(bytes, 'end');
        if (response.status === 200) expect(response, bytes).toEqual(right);
        // 300: the path became `/`, where the versions are public.
        else
          expect([0, 300, 400, 401, 403, 404, 405, 417], `${response.body}\n${bytes}`).toContain(
            response.status,
          );
      }
    }),
    { numRuns: RUNS },
  );
});
