/** Turns measurements into rows of the table: a name, one number per round, and the goal if there is one. */
import { PEERS } from './prepare.mjs';

const LIMITS = {
  'timeline, 24 hours, 1 host': { limit: 0.5, peer: 10 },
  'timeline, 30 days, project': { limit: 0.5, peer: 10 },
  'distribution, 30 days, 10 hosts': { limit: 0.7 },
  'timeline, 30 days, 100 hosts': {},
};
const OURS = ['wafstat, token', 'wafstat, AK/SK', 'wafstat, token, computed'];

export function goalRows({ speed, calls, latency, growth, workers, ingesting, live, memory_mb }) {
  const rows = [];
  const add = (name, values, goal) => rows.push({ name, values, goal });
  for (const [query, speeds] of Object.entries(speed)) {
    const goals = LIMITS[query];
    for (const ours of OURS) {
      const ratio = (name) => speeds[ours].map((per_s, round) => per_s / speeds[name][round]);
      add(`${query}: ${ours} / limit`, ratio('limit'), goals.limit && { at_least: goals.limit });
    }
    const best = bestPeer(speeds);
    for (const ours of OURS) {
      const ratios = speeds[ours].map((per_s, round) => per_s / speeds[best][round]);
      add(`${query}: ${ours} / ${best}`, ratios, goals.peer && { at_least: goals.peer });
    }
  }
  for (const [query, values] of Object.entries(live))
    add(`${query}: wafstat / limit`, values, { at_least: 0.5 });
  for (const [call, values] of Object.entries(calls)) {
    add(`${call}, computed: time / timeline`, values, { at_most: 1.5 });
  }
  for (const [query, values] of Object.entries(latency)) {
    add(`${query}: p99 at half load, ms`, values, { at_most: query.includes('1,000') ? 50 : 5 });
  }
  for (const [query, values] of Object.entries(growth)) {
    add(`${query}: 10 x history and tenants / small, time`, values, { at_most: 1.2 });
  }
  add('two workers / one', workers, { at_least: 1.7 });
  const slowdown = ingesting.ingesting.map((ms, round) => ms / ingesting.idle[round]);
  add('p99 of queries, ingesting 50,000 events/s / idle', slowdown, { at_most: 3 });
  add(
    'events per second that came in meanwhile, thousands',
    ingesting.events_per_s.map((n) => n / 1_000),
  );
  add('memory of the service beyond the mapped file, MB', [memory_mb], { at_most: 300 });
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
