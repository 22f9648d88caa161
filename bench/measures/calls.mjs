/** The time of each statistics call, relative to the timeline over the same range and hosts. All responses are computed. */
import { get } from '../requests.mjs';
import { median } from '../rows.mjs';
import { generateLoad } from '../wrk.mjs';

/** The paths below `/waf/`, with their own parameters. */
export const CALLS = {
  'event/attack/num': '',
  'event/attack/domain': '',
  'event/attack/source': '',
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

/**
 * The first query of a list takes much longer than all that follow, so only the last range is used: all lists of it fit into
 * the cache, and the service has lists for it.
 */
const LIST_RANGES = 1;
const LISTS = [
  'event/attack/source',
  'overviews/attack/url',
  'overviews/attack/rule',
  'overviews/attack/country',
];
/** Calls whose lists are those of the calls above. */
const SAME_LISTS = ['overviews/attack/ip', 'overviews/classification'];

/** A median of five is enough for ratios that differ by half. */
const ROUNDS_MAX = 5;

/**
 * Returns `{"call: range and hosts": {ratios, first_ms}}`: the time of the call / the time of the timeline, one per round;
 * and, for top lists, the median time of the first query of each range.
 */
export async function measureCalls({ directory, address, timelines, rounds, seconds, log }) {
  const results = {};
  for (const [query, requests] of Object.entries(timelines)) {
    for (const name of Object.keys(CALLS)) {
      log(`calls: the first ${name}, ${query.replace('timeline, ', '')}`);
      const first_ms = median(await sendOnce(address, callRequests(name, requests)));
      results[rowName(name, query)] = { ratios: [], ...(LISTS.includes(name) && { first_ms }) };
    }
  }
  for (let round = 1; round <= Math.min(rounds, ROUNDS_MAX); round++) {
    log(`calls: round ${round}`);
    for (const [query, requests] of Object.entries(timelines)) {
      const load = (list) => generateLoad({ directory, address, requests: list, seconds });
      const timeline = await load(requests);
      for (const name of Object.keys(CALLS)) {
        const { per_s } = await load(callRequests(name, requests));
        results[rowName(name, query)].ratios.push(timeline.per_s / per_s);
      }
    }
  }
  return results;
}

function rowName(call, timeline) {
  return `${call}: ${timeline.replace('timeline, ', '')}`;
}

/** With the ranges and hosts of the timelines. */
export function callRequests(name, timelines) {
  const [path] = name.split(',');
  const isList = LISTS.includes(name) || SAME_LISTS.includes(name);
  return timelines.slice(0, isList ? LIST_RANGES : undefined).map((request) => ({
    ...request,
    path: request.path.replace('event/timeline', path) + CALLS[name],
  }));
}

/** Returns how long each request took. Measuring failures or empty lists would be meaningless. */
export async function sendOnce(address, requests) {
  const times = [];
  for (const request of requests) {
    const before = performance.now();
    const { status, body } = await get(address, request);
    times.push(performance.now() - before);
    if (status !== 200 || body.includes('"items":[]'))
      throw new Error(`${request.path}: ${status} ${body.toString().slice(0, 300)}`);
  }
  return times;
}
