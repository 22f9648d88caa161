/** Who is measured, each in a process of its own, and whether all of them answer the same. */
import { join } from 'node:path';
import { bench, wafstat } from './paths.mjs';
import { PEERS } from './prepare.mjs';
import { token, withoutCache, withSignature, withToken } from './requests.mjs';

export function startService(processes, data, ...args) {
  // As it is started by default, but for its log: the limit and the peers write none.
  const settings = ['--data', data, '--listen', '127.0.0.1:0', '--log-level', 'warn'];
  return processes.start(wafstat, ['serve', ...settings, ...args]);
}

/** By name, each with its address and with how requests to it prove who sends them. */
export async function startCandidates(processes, { folder, measured }, queries) {
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
    const peer = await processes.startScript(join(bench, 'peers/serve.mjs'), [name, folder, measured.data]);
    candidates[name] = { ...peer, authorize };
  }
  return candidates;
}

/** A comparison of answers that differ would be worth nothing. */
export async function checkAnswers(candidates, queries) {
  for (const paths of Object.values(queries)) {
    for (const path of paths.filter((_, i) => i % 10 === 0)) {
      const answers = [];
      for (const [name, { address, authorize }] of Object.entries(candidates)) {
        const [{ headers }] = await authorize([path]);
        const response = await fetch(address + path, { headers });
        answers.push({ name, text: `${response.status} ${await response.text()}` });
      }
      const other = answers.find(({ text }) => text !== answers[0].text || !text.startsWith('200 '));
      if (other) throw new Error(`${other.name} differs at ${path}: ${other.text.slice(0, 300)}`);
    }
  }
}
