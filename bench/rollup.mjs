/**
 * Writes the data for the databases: one row per host and minute, and one per host and hour. Scope 0 is the whole
 * project, scope n the n-th host. Sorted by the keys of the tables, because that loads fastest.
 *
 *   node rollup.mjs DIRECTORY '{"hosts": ...}'      writes minutes.csv and hours.csv
 */
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { CATEGORIES, DAY_MS, HOUR_MS, MINUTE_MS, trafficOfDay } from './data.mjs';

/** Requests, attacks, and each category. */
const COLUMNS = 2 + CATEGORIES.length;
const [directory, text] = process.argv.slice(2);
const traffic = JSON.parse(text);
const start = traffic.end - traffic.days * DAY_MS;

await writeTable('minutes.csv', MINUTE_MS);
await writeTable('hours.csv', HOUR_MS);

async function writeTable(name, unit_ms) {
  const length = (traffic.days * DAY_MS) / unit_ms;
  const counts = Array.from({ length: traffic.hosts + 1 }, () => new Uint16Array(length * COLUMNS));
  for (let day = 0; day < traffic.days; day++) {
    const events = trafficOfDay(traffic, day);
    for (let i = 0; i < events.length; i++) {
      const row = Math.floor((events.times[i] - start) / unit_ms) * COLUMNS;
      for (const scope of [counts[0], counts[events.hosts[i] + 1]]) {
        scope[row]++;
        if (events.categories[i] >= 0) {
          scope[row + 1]++;
          scope[row + 2 + events.categories[i]]++;
        }
      }
    }
  }
  const file = createWriteStream(join(directory, name));
  for (const [scope, columns] of counts.entries()) {
    for (let first = 0; first < length; first += 10_000) {
      let lines = '';
      for (let i = first; i < Math.min(first + 10_000, length); i++) {
        lines += `${scope},${start / unit_ms + i},${columns.subarray(i * COLUMNS, (i + 1) * COLUMNS).join()}\n`;
      }
      if (!file.write(lines)) await new Promise((resolve) => file.once('drain', resolve));
    }
  }
  await new Promise((resolve) => file.end(resolve));
}
