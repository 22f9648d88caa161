/** Replaces the figures in docs/performance.md, between its two markers. */
import { readFileSync, writeFileSync } from 'node:fs';
import { isReached } from './rows.mjs';
import { startUpTable } from './start-up.mjs';
import { compressionTable, markdownTable, speedTable, viewTable } from './table.mjs';

const BEGIN = '<!-- begin: written by npm run bench -->';
const END = '<!-- end -->';

export function writePage(path, { date, machine, live, speed, compression, startUp, rows, ingest }) {
  const page = readFileSync(path, 'utf8');
  const figures = [
    `${date.slice(0, 10)}, ${machine}.`,
    '![Responses per second](images/performance.svg)',
    'Ranges that end now, while 5,000 events come in every second:',
    viewTable('live dashboard', live),
    speedTable(live.speed),
    'Ranges in the past, while nothing comes in:',
    speedTable(speed),
    'Goals that this run missed. The spread is over the rounds; both figures of a ratio are from the same round.',
    markdownTable(rows.filter((row) => isReached(row) === false)),
    'Compressed and unchanged responses, for a timeline of 24 hours and one host:',
    compressionTable(compression),
    'Start-up, the fastest of 20 runs:',
    startUpTable(startUp),
    `\`\`\`\n${ingest}\n\`\`\``,
  ];
  const [before, rest] = page.split(BEGIN);
  const after = rest.split(END)[1];
  writeFileSync(path, `${before}${BEGIN}\n\n${figures.join('\n\n')}\n\n${END}${after}`);
}
