/** The requests of each query. They differ, so that caching a single response helps no candidate. */
import { join } from 'node:path';
import { DAY_MS, HOUR_MS } from './data.mjs';
import { root } from './paths.mjs';

const { sign } = await import(join(root, 'packages/signer/dist/index.js'));

const REQUESTS = 100;

/** `path` is relative to the address. The hosts rotate, the ranges move by the hour. */
export function queries({ measured, sets }) {
  const [project, wide] = measured.projects;
  const requestsOf = (set, { id, hostIds }, call, days, hosts) =>
    Array.from({ length: REQUESTS }, (_, i) => {
      const room = ((set.days - days) * DAY_MS) / HOUR_MS;
      const from = set.end - days * DAY_MS - ((i * 7) % (room + 1)) * HOUR_MS;
      const chosen = Array.from({ length: hosts }, (_, n) => hostIds[(i + n) % hostIds.length]);
      const filter = hosts === 0 ? '' : `&hosts=${chosen.join(',')}`;
      return `/v1/${id}/waf/event/${call}?from=${from}&to=${from + days * DAY_MS}${filter}`;
    });
  const { measured: set } = sets;
  return {
    'timeline, 24 hours, 1 host': requestsOf(set, project, 'timeline', 1, 1),
    'timeline, 30 days, project': requestsOf(set, project, 'timeline', 30, 0),
    'distribution, 30 days, 10 hosts': requestsOf(set, project, 'attack/type', 30, 10),
    'timeline, 30 days, 100 hosts': requestsOf(set, project, 'timeline', 30, set.hosts),
    'timeline, 30 days, 1,000 hosts': requestsOf(sets.wide, wide, 'timeline', sets.wide.days, 1_000).slice(
      0,
      20,
    ),
  };
}

export async function token(address, { password }, project, name = 'admin') {
  const user = { name, password, domain: { name: 'default' } };
  const auth = {
    identity: { methods: ['password'], password: { user } },
    scope: { project: { id: project } },
  };
  const response = await fetch(`${address}/v3/auth/tokens`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ auth }),
  });
  if (response.status !== 201) throw new Error(`no token: ${await response.text()}`);
  return response.headers.get('x-subject-token');
}

export function withToken(paths, text) {
  return paths.map((path) => ({ path, headers: { 'X-Auth-Token': text } }));
}

/** Requests that bypass the response cache: each response is computed. */
export function withoutCache(requests) {
  return requests.map(({ path, headers }) => ({
    path,
    headers: { ...headers, 'Cache-Control': 'no-cache' },
  }));
}

/** Signed once per measurement: a signature is valid for 15 minutes, and the service verifies it every time. */
export function withSignature(paths, address, { access, secret }) {
  return Promise.all(
    paths.map(async (path) => ({
      path,
      headers: await sign({ method: 'GET', url: `${address}${path}` }, { access, secret }),
    })),
  );
}
