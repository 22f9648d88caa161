/** The latency of responses at half the maximum load. */
import { median } from '../rows.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `{query: {p50, p99}}`: percentiles in milliseconds, one per round. */
export async function measureLatency({ directory, address, queries, rounds, seconds, log }) {
  const latencies = {};
  for (const [query, requests] of Object.entries(queries)) {
    log(`latency: ${query}`);
    const load = { directory, address, requests };
    const most = [];
    for (let round = 0; round < rounds; round++) {
      most.push((await generateLoad({ ...load, seconds })).per_s);
    }
    latencies[query] = { p50: [], p99: [] };
    for (let round = 0; round < rounds; round++) {
      const { p50, p99 } = await generateLoad({ ...load, seconds: 2 * seconds, rate: median(most) / 2 });
      latencies[query].p50.push(p50);
      latencies[query].p99.push(p99);
    }
  }
  return latencies;
}
