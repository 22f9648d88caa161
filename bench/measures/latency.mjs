/** The latency of responses at half the maximum load. */
import { median } from '../rows.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `{query: [99th percentile in milliseconds, one per round]}`. */
export async function measureLatency({ directory, address, queries, rounds, seconds, log }) {
  const latencies = {};
  for (const [query, requests] of Object.entries(queries)) {
    log(`latency: ${query}`);
    const load = { directory, address, requests };
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
