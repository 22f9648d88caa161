/** Puts the figures of a run into docs/performance.md, between its two marks; the text around them stays. */
import { readFileSync, writeFileSync } from 'node:fs';
import { markdownTable, packingTable, speedTable } from './table.mjs';

const BEGIN = '<!-- begin: written by npm run bench -->';
const END = '<!-- end -->';

export function writePage(path, { date, machine, speed, packing, rows, ingest }) {
  const page = readFileSync(path, 'utf8');
  const figures = [
    `${date.slice(0, 10)}, ${machine}.`,
    '![Answers per second](images/performance.svg)',
    speedTable(speed),
    'The goals. A spread is that of the rounds; each ratio is of two figures of one round.',
    markdownTable(rows),
    'Packed answers, and answers that have not changed, for a timeline of 24 hours and one host:',
    packingTable(packing),
    `\`\`\`\n${ingest}\n\`\`\``,
  ];
  const [before, rest] = page.split(BEGIN);
  const after = rest.split(END)[1];
  writeFileSync(path, `${before}${BEGIN}\n\n${figures.join('\n\n')}\n\n${END}${after}`);
}
