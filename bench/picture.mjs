/** Draws the speeds: one bar per query and candidate, on a logarithmic scale. */
import { median } from './rows.mjs';

const WIDTH = 860;
const LEFT = 190;
const RIGHT = 90;
const BAR = 16;
const GAP = 5;
const HEAD = 34;
const FIRST = 1;

/** Readable on light and dark pages. */
const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .query { font-weight: 600 }
  .number, .scale { fill: #52606d; font-size: 12px }
  .line { stroke: #cbd2d9 }
  .limit { fill: #9aa5b1 } .ours { fill: #1a6fd4 } .peer { fill: #e08e45 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb } .number, .scale { fill: #9aa5b1 } .line { stroke: #3e4c59 }
    .limit { fill: #7b8794 } .ours { fill: #4c9bf0 } .peer { fill: #d9894a }
  }`;

export function picture(speed) {
  const most = Math.max(...Object.values(speed).flatMap((speeds) => Object.values(speeds).map(median)));
  const decades = Math.ceil(Math.log10(most));
  const x = (per_s) =>
    LEFT + (Math.max(0, Math.log10(per_s) - FIRST) / (decades - FIRST)) * (WIDTH - LEFT - RIGHT);
  const parts = [];
  let y = 30;
  for (const [query, speeds] of Object.entries(speed)) {
    parts.push(`<text class="query" x="8" y="${y + 14}">${query}</text>`);
    y += HEAD - 10;
    for (const [name, values] of Object.entries(speeds)) {
      const per_s = median(values);
      const kind = name === 'limit' ? 'limit' : name.startsWith('wafstat') ? 'ours' : 'peer';
      const end = x(per_s);
      const label = Math.round(per_s).toLocaleString('en');
      parts.push(
        `<text x="${LEFT - 10}" y="${y + 13}" text-anchor="end">${name}</text>`,
        `<rect class="${kind}" x="${LEFT}" y="${y}" width="${(end - LEFT).toFixed(1)}" height="${BAR}" rx="2"/>`,
        `<text class="number" x="${(end + 6).toFixed(1)}" y="${y + 13}">${label}</text>`,
      );
      y += BAR + GAP;
    }
    y += HEAD / 2;
  }
  const scale = Array.from({ length: decades - FIRST + 1 }, (_, i) => {
    const at = x(10 ** (FIRST + i)).toFixed(1);
    const label = (10 ** (FIRST + i)).toLocaleString('en');
    return `<line class="line" x1="${at}" x2="${at}" y1="24" y2="${y}"/><text class="scale" x="${at}" y="18" text-anchor="middle">${label}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" viewBox="0 0 ${WIDTH} ${y}" role="img">
<title>Responses per second, on a logarithmic scale</title>
<style>${STYLE}
</style>
<text class="scale" x="8" y="18">responses per second</text>
${[...scale, ...parts].join('\n')}
</svg>
`;
}
