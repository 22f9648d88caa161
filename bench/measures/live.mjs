/** Timelines of ranges that end now, while events come in: what dashboards request. */
import { join } from 'node:path';
import { startService } from '../candidates.mjs';
import { DAY_MS } from '../data.mjs';
import { bench } from '../paths.mjs';
import { token, withToken } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';
import { startIngesting } from './ingesting.mjs';

const EVENTS_PER_S = 1_000;
/** Enough that none repeats within a second. */
const REQUESTS = 20_000;
/** The limit repeats a few prepared responses. */
const PREPARED = 20;

/** Returns `{query: [wafstat / limit, one per round]}`. */
export async function measureLive({ directory, prepared, processes, rounds, seconds, log }) {
  const { old } = prepared;
  const [{ id, hostIds }] = old.projects;
  const service = await startService(processes, old.data);
  const text = await token(service.address, old, id);
  const views = {
    'live timeline, 24 hours, 1 host': { days: 1, hosts: 1 },
    'live timeline, 24 hours, 10 hosts': { days: 1, hosts: 10 },
    'live timeline, 24 hours, project': { days: 1, hosts: 0 },
    'live timeline, 30 days, 1 host': { days: 30, hosts: 1 },
    'live timeline, 30 days, 10 hosts': { days: 30, hosts: 10 },
    'live timeline, 30 days, project': { days: 30, hosts: 0 },
  };
  const pathsOf = ({ days, hosts }, count) =>
    Array.from({ length: count }, (_, i) => {
      // Sent within the next two seconds.
      const to = Date.now() + 1_000 + (i % 1_000);
      const chosen = Array.from({ length: hosts }, (_, n) => hostIds[(i + n) % hostIds.length]);
      const filter = hosts === 0 ? '' : `&hosts=${chosen.join(',')}`;
      return `/v1/${id}/waf/event/timeline?from=${to - days * DAY_MS}&to=${to}${filter}`;
    });
  const fixed = Object.fromEntries(
    Object.entries(views).map(([name, view]) => [name, pathsOf(view, PREPARED)]),
  );
  const bare = await processes.startScript(
    join(bench, 'bare.mjs'),
    [service.address, text],
    JSON.stringify(Object.values(fixed).flat()),
  );
  const stopIngesting = await startIngesting(directory, old.data, id, EVENTS_PER_S);
  const ratios = Object.fromEntries(Object.keys(views).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'live: warming up' : `live: round ${round} of ${rounds}`);
    for (const [name, view] of Object.entries(views)) {
      const speed = async (address, paths) => {
        const { per_s } = await generateLoad({
          directory,
          address,
          requests: withToken(paths, text),
          seconds,
        });
        return per_s;
      };
      const limit = await speed(bare.address, fixed[name]);
      const ours = await speed(service.address, pathsOf(view, REQUESTS));
      if (round > 0) ratios[name].push(ours / limit);
    }
  }
  await stopIngesting();
  await bare.stop();
  await service.stop();
  return ratios;
}
