/** How long an answer takes when the service has half as much to do as it could. */
import { generateLoad } from '../wrk.mjs';

/** Answers `{query: [99th percentile in milliseconds, one for each round]}`. */
export async function measureLatency({ folder, address, queries, rounds, seconds, log }) {
  const latencies = {};
  for (const [query, requests] of Object.entries(queries)) {
    log(`latency: ${query}`);
    latencies[query] = [];
    for (let round = 0; round < rounds; round++) {
      const { per_s } = await generateLoad({ folder, address, requests, seconds });
      const { p99 } = await generateLoad({
        folder,
        address,
        requests,
        seconds: 2 * seconds,
        rate: per_s / 2,
      });
      latencies[query].push(p99);
    }
  }
  return latencies;
}
