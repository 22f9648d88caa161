/** Turns measurements into rows of the table: a name, one number per round or a note, and the goal if there is one. */
import { PEERS } from './data.mjs';

const OURS = ['wafstat, token', 'wafstat, AK/SK', 'wafstat, token, computed'];
/** The share of the limit. */
const OF_THE_LIMIT = { 'wafstat, token': 0.7, 'wafstat, AK/SK': 0.6, 'wafstat, token, computed': 0.5 };
const LIVE_OF_THE_LIMIT = 0.5;
/** How many times as fast as the best peer, in every row. */
const OF_THE_BEST_PEER = 10;
/** Its points are the sums of so many hosts that computing them takes most of the time. */
const NO_LIMIT_GOAL = 'timeline, 30 days, 100 hosts';

export function goalRows(figures) {
  const { live, speed, calls, latency, growth, workers, ingesting, memory_mb, startUp } = figures;
  const rows = [];
  const add = (name, values, goal) => rows.push({ name, values, goal });
  const addRatio = (query, speeds, ours, other, at_least) => {
    const ratios = speeds[ours].map((per_s, round) => per_s / speeds[other][round]);
    // If the other candidate answered nothing in a round, that round has no ratio.
    add(`${query}: ${ours} / ${other}`, ratios.filter(Number.isFinite), at_least && { at_least });
  };
  const addPeerRatio = (query, speeds, ours) => {
    const peer = bestPeer(speeds);
    if (median(speeds[peer]) > 0) addRatio(query, speeds, ours, peer, OF_THE_BEST_PEER);
    else rows.push({ name: `${query}: ${ours} / best peer`, values: [], note: 'peers failed' });
  };
  for (const [view, speeds] of Object.entries(live.speed)) {
    addRatio(view, speeds, 'wafstat', 'limit', LIVE_OF_THE_LIMIT);
    addPeerRatio(view, speeds, 'wafstat');
  }
  for (const [query, speeds] of Object.entries(speed)) {
    for (const ours of OURS)
      addRatio(query, speeds, ours, 'limit', query === NO_LIMIT_GOAL ? undefined : OF_THE_LIMIT[ours]);
    for (const ours of OURS) addPeerRatio(query, speeds, ours);
  }
  for (const [call, { ratios }] of Object.entries(calls)) {
    add(`${call}, computed: time / timeline`, ratios, { at_most: 1.5 });
  }
  for (const [call, { first_ms }] of Object.entries(calls)) {
    if (first_ms !== undefined) add(`${call}: first query of a range, ms`, [first_ms]);
  }
  for (const [query, { p50, p99 }] of Object.entries(latency)) {
    if (query.startsWith('distribution')) add(`${query}: median at half load, ms`, p50, { at_most: 5 });
    else add(`${query}: p99 at half load, ms`, p99, { at_most: query.includes('1,000') ? 50 : 5 });
  }
  for (const [query, values] of Object.entries(growth)) {
    add(`${query}: 10 x history and tenants / small, time`, values, { at_most: 1.2 });
  }
  add(`two workers / one, ${workers.by}`, workers.ratios, { at_least: 1.8 });
  add(`two separate services / one, ${workers.by}: what the machine allows`, workers.separate);
  const slowdown = ingesting.ingesting.map((ms, round) => ms / ingesting.idle[round]);
  add('p99 of queries, ingesting 50,000 events/s / idle', slowdown, { at_most: 2 });
  add(
    'events per second that came in meanwhile, thousands',
    ingesting.events_per_s.map((n) => n / 1_000),
  );
  add('memory of the service beyond the mapped file, MB', [memory_mb], { at_most: 150 });
  for (const [command, { clock, goal }] of Object.entries(startUp)) {
    if (goal) add(`start-up of ${command}, ms`, [clock], { at_most: goal });
  }
  return rows;
}

/** The peer with the highest median. */
function bestPeer(speeds) {
  return PEERS.toSorted((a, b) => median(speeds[b]) - median(speeds[a]))[0];
}

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export function isReached({ values, goal }) {
  if (!goal) return null;
  return goal.at_least === undefined ? median(values) <= goal.at_most : median(values) >= goal.at_least;
}
