/** Generates the traffic for all candidates: always the same for the same days. */
import { addressOf, countryOf, ruleOf, urlOf, zipf } from './details.mjs';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** The databases that the service is compared with: modules in bench/peers/. */
export const PEERS = ['sqlite', 'duckdb', 'postgres'];

/** In the order of CATEGORIES in packages/server/src/event.ts. */
export const CATEGORIES =
  'xss,sqli,cmdi,cc,custom,illegal,lfi,robot,antitamper,rfi,vuln,whiteblackip,webshell'.split(',');

/** As long as the service keeps top lists by default. */
const DETAILS_DAYS = 30;
/** Every host has traffic in every minute: the hardest case for a store that omits zeros. */
const STEADY = { slot_ms: MINUTE_MS, mean: 1.54, attack_share: 0.03, details_days: DETAILS_DAYS };
/**
 * One event per quarter of an hour, mostly attacks: as many hourly counters as STEADY, but fewer events. Details would triple
 * the time to write them, and no top list of them is measured.
 */
const SPARSE = { slot_ms: 15 * MINUTE_MS, mean: 1, attack_share: 0.7, details_days: 0 };

/** The values of attacks: the first of each list are frequent, most are rare. */
const ADDRESSES = Array.from({ length: 4_000 }, (_, n) => addressOf(n));
const COUNTRIES = ADDRESSES.map((_, n) => countryOf(n));
const PATHS = Array.from({ length: 300 }, (_, n) => urlOf(n));
const RULES = CATEGORIES.map((_, category) => Array.from({ length: 5 }, (_, n) => ruleOf(category * 5 + n)));

/** Ends at the last midnight, so that no event is too old or in the future. */
const END = Math.floor(Date.now() / DAY_MS) * DAY_MS;

/** All candidates get `measured`. Only the service gets the others, for goals without a comparison. */
export function dataSets(quick) {
  return {
    measured: { ...STEADY, name: 'measured', hosts: quick ? 20 : 100, days: quick ? 31 : 90, end: END },
    wide: { ...SPARSE, name: 'wide', hosts: 1_000, days: quick ? 8 : 30, end: END },
    young: { ...STEADY, name: 'young', hosts: quick ? 4 : 10, days: quick ? 1 : 9, end: END },
    old: { ...STEADY, name: 'old', hosts: quick ? 4 : 10, days: quick ? 10 : 90, end: END },
  };
}

/** The events of one day (0 is the first), in the order of slots, as columns of equal length. */
export function trafficOfDay({ hosts, slot_ms, mean, attack_share, days, end }, day) {
  const from = end - (days - day) * DAY_MS;
  const random = randomNumbers(from / DAY_MS);
  const most = Math.ceil(mean) * hosts * (DAY_MS / slot_ms);
  const events = {
    length: 0,
    times: new Float64Array(most),
    hosts: new Uint16Array(most),
    /** -1: an ordinary request. */
    categories: new Int8Array(most),
  };
  for (let slot = from; slot < from + DAY_MS; slot += slot_ms) {
    for (let host = 0; host < hosts; host++) {
      for (let n = Math.floor(mean) + (random() < mean % 1 ? 1 : 0); n > 0; n--) {
        const i = events.length++;
        events.times[i] = slot + Math.floor(random() * slot_ms);
        events.hosts[i] = host;
        // Squared, so that some categories are common and others rare.
        events.categories[i] = random() < attack_share ? Math.floor(random() ** 2 * CATEGORIES.length) : -1;
      }
    }
  }
  return events;
}

/** The events between the end of a data set and a later time. */
export function eventsSince(traffic, until) {
  const events = [];
  for (let day = traffic.days; traffic.end + (day - traffic.days) * DAY_MS < until; day++) {
    const { length, times, hosts, categories } = trafficOfDay(traffic, day);
    for (let i = 0; i < length; i++) {
      if (times[i] < until) events.push({ time: times[i], host: hosts[i], category: categories[i] });
    }
  }
  return events;
}

/** Events of the last milliseconds in the same form, spread over the hosts, 3% attacks. */
export function eventsNow(count, hosts, spread_ms) {
  const now = Date.now();
  return Array.from({ length: count }, (_, i) => ({
    time: now - (i % spread_ms),
    host: i % hosts,
    category: i % 33 === 0 ? CATEGORIES.indexOf('sqli') : -1,
  }));
}

/** The details of an attack, always the same for the same attack. Only the service counts them. */
export function detailsOf(time, host, category) {
  const random = randomNumbers(Math.imul(host + 1, 0x9e3779b1) ^ time);
  const chosen = (list) => list[zipf(list.length, random)];
  const source = zipf(ADDRESSES.length, random);
  return {
    source: ADDRESSES[source],
    url: chosen(PATHS),
    rule: chosen(RULES[category]),
    country: COUNTRIES[source],
  };
}

/** Pseudo-random numbers from 0 to 1 (mulberry32). */
function randomNumbers(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
