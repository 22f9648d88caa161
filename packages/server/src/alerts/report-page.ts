/** A report as one page of HTML: no scripts, nothing to load, and every text from logs escaped. */
import { number, printable } from '../printable.ts';
import { DAY_MS } from '../statistics/grid.ts';
import { clock } from './messages.ts';
import type { Ranking, Report } from './report.ts';

const WIDTH = 720;
const HEIGHT = 180;
const LEFT = 56;
const BOTTOM = 22;
const TICKS = 4;

const STYLE = `
body { font: 14px/1.45 system-ui, sans-serif; color: #1c2430; max-width: 760px; margin: 24px auto; padding: 0 16px }
h1 { font-size: 22px; margin: 0 } h2 { font-size: 16px; margin: 28px 0 8px } p { margin: 4px 0 }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0 } .figures div { flex: 1 1 130px; border: 1px solid #d5dae1; border-radius: 6px; padding: 10px }
.figures b { display: block; font-size: 24px } .muted { color: #566273 }
table { border-collapse: collapse; width: 100%; table-layout: fixed } td, th { text-align: left; padding: 3px 6px; border-bottom: 1px solid #e4e8ed; overflow-wrap: anywhere; vertical-align: top }
td.n, th.n { text-align: right; width: 110px; font-variant-numeric: tabular-nums } th { font-weight: 600; color: #566273 }
svg { width: 100%; height: auto } section, tr { break-inside: avoid } thead { display: table-header-group }
@media (max-width: 600px) { td.n, th.n { width: 72px } }
@media print { body { margin: 0; max-width: none; font-size: 12px } @page { margin: 16mm } .figures b { font-size: 18px } }
`;

export function reportPage(report: Report): string {
  const { project, from, to, totals, before, rankings, incidents, silent, candidates } = report;
  const figures = [
    ['Attacks', totals.attacks, before?.attacks],
    ['Blocked', totals.blocked, before?.blocked],
    ['Only detected', totals.attacks - totals.blocked, before && before.attacks - before.blocked],
    ['Requests', totals.requests, before?.requests],
  ] as const;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Report: ${html(project)}</title><style>${STYLE}</style></head><body>
<h1>Report: ${html(project)}</h1>
<p class="muted">${clock(from)} to ${clock(to)}, ${before ? 'compared' : 'not compared'} with the ${days(to - from)} before${before ? '' : ': there is no data of all of it'}</p>
<div class="figures">${figures.map(([name, count, old]) => `<div>${name}<b>${number(count)}</b><span class="muted">${change(count, old)}</span></div>`).join('')}</div>
<section><h2>Attacks over time</h2>${chart(report)}</section>
${rankings.map(ranking).join('\n')}
<section><h2>Incidents</h2>${table(
    ['Alert', 'From', 'To', 'Attacks', 'Usually'],
    incidents.map(({ alert, since, until, attacks, total, usual, percent }) => [
      alert,
      clock(since),
      until === null ? 'open' : clock(until),
      attackText(until, attacks, total, percent),
      figure(usual),
    ]),
    3,
    'No incidents.',
  )}</section>
<section><h2>Silent log sources</h2>${table(
    ['Source', 'Last line'],
    silent.map(({ name, last_seen }) => [name, clock(last_seen)]),
    2,
    'No log source sends less often than usual.',
  )}</section>
<section><h2>Likely false positives</h2>${table(
    ['Host and path', 'What matched', 'Rules', 'Attacks'],
    candidates.map(({ host, path, variable, rules, attacks }) => [
      `${host}${path}`,
      variable,
      rules.join(', '),
      number(attacks),
    ]),
    3,
    'None found.',
  )}</section>
</body></html>
`;
}

function ranking({ title, column, items }: Ranking): string {
  const rows = items.map(({ name, num, before }) => [name, number(num), change(num, before)]);
  return `<section><h2>${title}</h2>${table([column, 'Attacks', 'Change'], rows, 1, 'None.')}</section>`;
}

/** Columns from `firstNumber` on are right-aligned. */
function table(head: string[], rows: readonly string[][], firstNumber: number, none: string): string {
  if (rows.length === 0) return `<p class="muted">${none}</p>`;
  const cell = (tag: 'th' | 'td') => (text: string, i: number) =>
    `<${tag}${i >= firstNumber ? ' class="n"' : ''}>${html(text)}</${tag}>`;
  return `<table><thead><tr>${head.map(cell('th')).join('')}</tr></thead><tbody>${rows
    .map((row) => `<tr>${row.map(cell('td')).join('')}</tr>`)
    .join('')}</tbody></table>`;
}

/** A bar per hour or day: blocked attacks below, only detected ones above. */
function chart({ edges, attacks, blocked, from, to }: Report): string {
  const max = niceMax(Math.max(1, ...attacks));
  const [plotWidth, plotHeight] = [WIDTH - LEFT, HEIGHT - BOTTOM];
  const x = (time: number) => LEFT + ((time - from) / (to - from)) * plotWidth;
  const y = (count: number) => 8 + (plotHeight - 8) * (1 - count / max);
  const bar = (i: number, low: number, high: number, color: string) => {
    const left = x(edges[i] ?? from);
    const width = Math.max(0.5, x(edges[i + 1] ?? to) - left - 0.6);
    return high > low
      ? `<rect x="${left.toFixed(1)}" y="${y(high).toFixed(1)}" width="${width.toFixed(1)}" height="${(y(low) - y(high)).toFixed(1)}" fill="${color}"/>`
      : '';
  };
  const bars = Array.from(attacks, (count, i) => {
    const stopped = blocked[i] ?? 0;
    return bar(i, 0, stopped, '#5b7fb5') + bar(i, stopped, count, '#c2410c');
  });
  const lines = Array.from({ length: TICKS + 1 }, (_, i) => {
    const count = (max / TICKS) * i;
    return `<line x1="${LEFT}" x2="${WIDTH}" y1="${y(count)}" y2="${y(count)}" stroke="#e4e8ed"/><text x="${LEFT - 6}" y="${y(count) + 4}" text-anchor="end">${number(count)}</text>`;
  });
  const stepDays = Math.max(1, Math.ceil((to - from) / DAY_MS / 8));
  const labels: string[] = [];
  for (let time = Math.ceil(from / DAY_MS) * DAY_MS; time < to; time += stepDays * DAY_MS)
    labels.push(
      `<text x="${x(time).toFixed(1)}" y="${HEIGHT - 4}">${new Date(time).toISOString().slice(5, 10)}</text>`,
    );
  const legend =
    '<p class="muted"><span style="color:#5b7fb5">&#9632;</span> blocked <span style="color:#c2410c">&#9632;</span> only detected</p>';
  return `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Attacks over time" font-size="11" fill="#566273">${[...lines, ...bars, ...labels].join('')}</svg>${legend}`;
}

/** A round number that TICKS divide. */
function niceMax(count: number): number {
  const power = 10 ** Math.floor(Math.log10(count));
  const found = [1, 2, 4, 6, 8, 10].find((factor) => factor * power >= count) ?? 10;
  return Math.max(TICKS, found * power);
}

function change(count: number, before: number | null | undefined): string {
  if (before === null || before === undefined) return '';
  if (before === 0) return count === 0 ? 'no change' : 'none before';
  const percent = Math.round((100 * (count - before)) / before);
  return percent === 0 ? 'no change' : `${percent > 0 ? '+' : '−'}${number(Math.abs(percent))}%`;
}

function attackText(
  until: number | null,
  attacks: number | null,
  total: number | null,
  percent: number | null,
): string {
  if (percent !== null) return `${percent}%`;
  return until === null && attacks !== null ? `${number(attacks)} when opened` : figure(total ?? attacks);
}

function figure(count: number | null): string {
  return count === null ? '' : number(count);
}

function days(ms: number): string {
  const count = Math.round(ms / DAY_MS);
  return count === 1 ? '24 hours' : count > 1 ? `${count} days` : 'time';
}

function html(text: string): string {
  return printable(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
