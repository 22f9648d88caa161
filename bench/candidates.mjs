/** Starts all candidates, each in its own process, and checks that all return the same responses. */
import { join } from 'node:path';
import { PEERS } from './data.mjs';
import { bench, wafstat } from './paths.mjs';
import { token, withoutCache, withSignature, withToken } from './requests.mjs';

export function startService(processes, data, ...args) {
  // Default settings, except for the access log: the limit and the peers write none.
  const settings = ['--data', data, '--listen', '127.0.0.1:0', '--log-level', 'warn'];
  return processes.start(wafstat, ['serve', ...settings, ...args]);
}

/** `live`: what peers/serve.mjs says. */
export function startPeer(processes, name, directory, data, live) {
  const args = [name, directory, data, ...(live ? [JSON.stringify(live)] : [])];
  return processes.startScript(join(bench, 'peers/serve.mjs'), args);
}

/** By name: the address of each candidate, and how to authorize requests to it. */
export async function startCandidates(processes, { directory, measured }, queries) {
  const service = await startService(processes, measured.data);
  const text = await token(service.address, measured, measured.projects[0].id);
  const authorize = (paths) => withToken(paths, text);
  const paths = Object.values(queries).flat();
  const bare = await processes.startScript(
    join(bench, 'bare.mjs'),
    [service.address, text],
    JSON.stringify(paths),
  );
  const candidates = {
    limit: { ...bare, authorize },
    'wafstat, token': { ...service, authorize },
    'wafstat, token, computed': { ...service, authorize: (all) => withoutCache(authorize(all)) },
    'wafstat, AK/SK': { ...service, authorize: (all) => withSignature(all, service.address, measured) },
  };
  for (const name of PEERS) {
    candidates[name] = { ...(await startPeer(processes, name, directory, measured.data)), authorize };
  }
  return candidates;
}

/** Comparing the speed of different responses would be meaningless. */
export async function checkResponses(candidates, queries) {
  for (const paths of Object.values(queries)) {
    for (const path of paths.filter((_, i) => i % 10 === 0)) {
      const responses = [];
      for (const [name, { address, authorize }] of Object.entries(candidates)) {
        const [{ headers }] = await authorize([path]);
        const response = await fetch(address + path, { headers });
        responses.push({ name, text: `${response.status} ${await response.text()}` });
      }
      const other = responses.find(({ text }) => text !== responses[0].text || !text.startsWith('200 '));
      if (other) throw new Error(`${other.name} differs at ${path}: ${other.text.slice(0, 300)}`);
    }
  }
}
