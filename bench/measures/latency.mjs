/** How long an answer takes when the service has half as much to do as it could. */
import { median } from '../rows.mjs';
import { generateLoad } from '../wrk.mjs';

/** Answers `{query: [99th percentile in milliseconds, one for each round]}`. */
export async function measureLatency({ folder, address, queries, rounds, seconds, log }) {
  const latencies = {};
  for (const [query, requests] of Object.entries(queries)) {
    log(`latency: ${query}`);
    const load = { folder, address, requests };
    const most = [];
    for (let round = 0; round < rounds; round++) {
      most.push((await generateLoad({ ...load, seconds })).per_s);
    }
    latencies[query] = [];
    for (let round = 0; round < rounds; round++) {
      const { p99 } = await generateLoad({ ...load, seconds: 2 * seconds, rate: median(most) / 2 });
      latencies[query].push(p99);
    }
  }
  return latencies;
}
