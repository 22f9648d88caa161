/** The time of each statistics call, relative to the timeline over the same range and hosts. All responses are computed. */
import { generateLoad } from '../wrk.mjs';

/** The paths below `/waf/`, with their own parameters. */
const CALLS = {
  'event/attack/num': '',
  'event/attack/domain': '',
  'event/request/peak': '',
  'overviews/statistics': '',
  'overviews/request/timeline': '',
  'overviews/qps/timeline': '',
  'overviews/qps/timeline, peak': '&display_option=1',
  'overviews/attack/timeline': '',
  'overviews/attack/top-domains': '',
  'overviews/attack/distribution': '',
  'overviews/attack/action-types': '',
  'overviews/attack/ip': '',
  'overviews/attack/url': '',
  'overviews/attack/rule': '',
  'overviews/attack/country': '',
  'overviews/classification': '',
};

/** A median of five is enough for ratios that differ by half. */
const ROUNDS_MAX = 5;

/** Returns `{"call, range and hosts": [time of the call / time of the timeline, one per round]}`. */
export async function measureCalls({ directory, address, timelines, rounds, seconds, log }) {
  const ratios = {};
  for (let round = 1; round <= Math.min(rounds, ROUNDS_MAX); round++) {
    log(`calls: round ${round}`);
    for (const [query, requests] of Object.entries(timelines)) {
      const load = (list) => generateLoad({ directory, address, requests: list, seconds });
      const timeline = await load(requests);
      for (const [name, parameters] of Object.entries(CALLS)) {
        const [path] = name.split(',');
        const calls = requests.map((request) => ({
          ...request,
          path: request.path.replace('event/timeline', path) + parameters,
        }));
        const row = `${name}: ${query.replace('timeline, ', '')}`;
        ratios[row] ??= [];
        ratios[row].push(timeline.per_s / (await load(calls)).per_s);
      }
    }
  }
  return ratios;
}
