/** Answers per second of every candidate, as fast as it can: the limit, the service, and what one could use instead. */
import { generateLoad } from '../wrk.mjs';

/** Answers `{query: {candidate: [answers per second, one for each round]}}`. */
export async function measureSpeed({ folder, candidates, queries, rounds, seconds, log }) {
  const speeds = {};
  for (const query of Object.keys(queries)) {
    speeds[query] = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  }
  // The first round warms up, and is not counted.
  for (let round = 0; round <= rounds; round++) {
    log(round === 0 ? 'speed: warming up' : `speed: round ${round} of ${rounds}`);
    // One candidate after the other, again and again, each time in another order: what else the machine does hits all alike.
    for (const [query, paths] of Object.entries(queries)) {
      for (const [name, { address, authorize }] of shuffled(Object.entries(candidates))) {
        const requests = await authorize(paths);
        const { per_s } = await generateLoad({ folder, address, requests, seconds });
        if (round > 0) speeds[query][name].push(per_s);
      }
    }
  }
  return speeds;
}

function shuffled(list) {
  return list
    .map((item) => ({ item, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
