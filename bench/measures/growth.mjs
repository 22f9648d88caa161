/**
 * Measures whether a query takes more CPU time of the service with ten times the history and ten times the tenants in
 * the file.
 */
import { startService } from '../candidates.mjs';
import { DAY_MS, HOUR_MS } from '../data.mjs';
import { processorTime } from '../processes.mjs';
import { token, withoutCache, withToken } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `{query: [time with the large file / time with the small one, one per round]}`. */
export async function measureGrowth({ directory, prepared, processes, rounds, seconds, log }) {
  const { young, old, sets } = prepared;
  const files = [];
  for (const [installation, project] of [
    [young, young.projects[0]],
    [old, old.projects[5]],
  ]) {
    const { address, pid } = await startService(processes, installation.data);
    const text = await token(address, installation, project.id);
    files.push({ address, pid, queries: queries(project, sets.young, text) });
  }
  const growth = {};
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'growth: warming up' : `growth: round ${round} of ${rounds}`);
    for (const query of Object.keys(files[0].queries)) {
      const times = [];
      for (const { address, pid, queries } of files) {
        const before = processorTime(pid);
        const { per_s } = await generateLoad({ directory, address, requests: queries[query], seconds });
        times.push((processorTime(pid) - before) / per_s);
      }
      if (round > 0) growth[query] = [...(growth[query] ?? []), times[1] / times[0]];
    }
  }
  return growth;
}

/** The same requests for both: the last days, which both have. All responses are computed. */
function queries({ id, hostIds }, { days, end }, text) {
  const requestsOf = (call, length, hosts) =>
    Array.from({ length: 50 }, (_, i) => {
      const from = end - length * DAY_MS - ((i * HOUR_MS) % ((days - length) * DAY_MS + 1));
      const chosen =
        hosts === 0 ? '' : `&hosts=${[...hostIds, ...hostIds].slice(i % hostIds.length).slice(0, hosts)}`;
      return `/v1/${id}/waf/event/${call}?from=${from}&to=${from + length * DAY_MS}${chosen}`;
    });
  const long = Math.min(7, days);
  return {
    'timeline, 24 hours, 1 host': withoutCache(withToken(requestsOf('timeline', 1, 1), text)),
    [`timeline, ${long} days, project`]: withoutCache(withToken(requestsOf('timeline', long, 0), text)),
    [`distribution, ${long} days, 10 hosts`]: withoutCache(
      withToken(requestsOf('attack/type', long, 10), text),
    ),
  };
}
