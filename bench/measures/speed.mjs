/** The responses per second of every candidate under full load. */
import { PEERS } from '../data.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `{query: {candidate: [responses per second, one per round]}}`. */
export async function measureSpeed({ directory, candidates, queries, rounds, seconds, log }) {
  const speeds = {};
  for (const query of Object.keys(queries)) {
    speeds[query] = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  }
  // The first round is a warm-up.
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'speed: warming up' : `speed: round ${round} of ${rounds}`);
    // In random order, so that other load on the machine affects all candidates alike.
    for (const [query, paths] of Object.entries(queries)) {
      for (const [name, { address, authorize }] of shuffled(Object.entries(candidates))) {
        const requests = await authorize(paths);
        const mayShedAll = PEERS.includes(name);
        const { per_s } = await generateLoad({ directory, address, requests, seconds, mayShedAll });
        if (round > 0) speeds[query][name].push(per_s);
      }
    }
  }
  return speeds;
}

export function shuffled(list) {
  return list
    .map((item) => ({ item, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
