/** The requests of each query. They differ, so that caching a single response helps no candidate. */
import http from 'node:http';
import { join } from 'node:path';
import { DAY_MS, HOUR_MS } from './data.mjs';
import { root } from './paths.mjs';

const { sign } = await import(join(root, 'packages/signer/dist/index.js'));

const REQUESTS = 100;

/** For all candidates. `path` is relative to the address. */
export function queries({ measured, sets: { measured: set } }) {
  const [project] = measured.projects;
  return {
    'timeline, 24 hours, 1 host': requestsOf(set, project, 'timeline', 1, 1),
    'timeline, 30 days, project': requestsOf(set, project, 'timeline', 30, 0),
    'distribution, 30 days, 10 hosts': requestsOf(set, project, 'attack/type', 30, 10),
    'timeline, 30 days, 100 hosts': requestsOf(set, project, 'timeline', 30, set.hosts),
  };
}

/** Only for the service. */
export function wideQueries({ measured, sets: { wide: set } }) {
  const project = measured.projects[1];
  return {
    'timeline, 30 days, 1,000 hosts': requestsOf(set, project, 'timeline', set.days, 1_000).slice(0, 20),
    'distribution, 30 days, 1,000 hosts': requestsOf(set, project, 'attack/type', set.days, 1_000).slice(
      0,
      20,
    ),
  };
}

/** The hosts rotate, the ranges move by the hour. */
function requestsOf(set, { id, hostIds }, call, days, hosts) {
  return Array.from({ length: REQUESTS }, (_, i) => {
    const room = ((set.days - days) * DAY_MS) / HOUR_MS;
    const from = set.end - days * DAY_MS - ((i * 7) % (room + 1)) * HOUR_MS;
    const chosen = Array.from({ length: hosts }, (_, n) => hostIds[(i + n) % hostIds.length]);
    const filter = hosts === 0 ? '' : `&hosts=${chosen.join(',')}`;
    return `/v1/${id}/waf/event/${call}?from=${from}&to=${from + days * DAY_MS}${filter}`;
  });
}

/**
 * A request whose range ends when it is sent: the load generator adds `from` and `to` to the path.
 * `hosts`: the IDs, or none for the whole project.
 */
export function liveRequest(project, call, days, hosts, headers) {
  const filter = hosts.length === 0 ? '' : `hosts=${hosts.join(',')}&`;
  return { path: `/v1/${project}/waf/event/${call}?${filter}`, range_ms: days * DAY_MS, headers };
}

/** With a range that ends at the given time. */
export function pathUntil({ path, range_ms }, to) {
  return `${path}from=${to - range_ms}&to=${to}`;
}

export function pathBeforeRange(path) {
  return path.slice(0, path.lastIndexOf('from='));
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

/** Without decompression, which `fetch` would do. */
export function get(address, { path, headers, agent }) {
  return new Promise((resolve, reject) => {
    http
      .get(address + path, { headers, agent }, (response) => {
        const chunks = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('end', () => {
          const { statusCode: status, headers } = response;
          resolve({ status, headers, body: Buffer.concat(chunks) });
        });
      })
      .on('error', reject);
  });
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
