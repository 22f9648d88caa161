/** Files and commands that leave the console: CSV, curl, PNG. */
import { h } from './dom.ts';
import { formatCount } from './format.ts';
import { colour } from './theme.ts';
import type { TimeRange } from './time-range.ts';

/** CSV by RFC 4180. */
export function csv(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((row) => `${row.map(csvField).join(',')}\r\n`).join('');
}

/** Spreadsheets run text that looks like a formula, and attackers choose host names: an apostrophe prevents it. */
function csvField(field: string | number): string {
  if (typeof field === 'number') return String(field);
  const text = /^[=+\-@\t\r\n]/.test(field) ? `'${field}` : field;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export interface StatisticsQuery extends TimeRange {
  origin: string;
  project: string;
  hosts: readonly string[];
}

export function timelineCurl(query: StatisticsQuery, timezone: string): string {
  return curl(query, 'event/timeline', timezone);
}

export function attackTimelineCurl(query: StatisticsQuery, timezone: string): string {
  return curl(query, 'overviews/attack/timeline', timezone);
}

export function attackTypesCurl(query: StatisticsQuery): string {
  return curl(query, 'event/attack/type', null);
}

export function topCurl(query: StatisticsQuery, list: string, top: number, category: string | null): string {
  const filter = category === null ? '' : `&attacks=${category}`;
  return curl(query, `overviews/attack/${list}`, null, `&top=${top}${filter}`);
}

function curl(query: StatisticsQuery, path: string, timezone: string | null, rest = ''): string {
  const { origin, project, from, to, hosts } = query;
  const zone = timezone === null ? '' : `&timezone=${encodeURIComponent(timezone)}`;
  const filter = hosts.map((id) => `&hosts=${id}`).join('');
  const url = `${origin}/v1/${project}/waf/${path}?from=${from}&to=${to}${zone}${filter}${rest}`;
  return `curl -H "X-Auth-Token: $TOKEN" '${url}'`;
}

/** Saves the content as a file. */
export function download(name: string, content: Blob | string): void {
  const blob =
    typeof content === 'string' ? new Blob([content], { type: 'text/csv;charset=utf-8' }) : content;
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  // By then the browser has started to read it.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const MARGIN = 24;
const LINE = 22;
const SWATCH = 10;

export interface LegendEntry {
  title: string;
  count: number;
  /** The variable of the style sheet. */
  colour: string;
}

/** The timeline as a PNG with title, range and legend. */
export function timelinePng(
  chart: HTMLCanvasElement,
  title: string,
  caption: string,
  legend: readonly LegendEntry[],
): Blob {
  const scale = chart.width / chart.clientWidth;
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  if (context === null) throw new Error('The browser does not support canvas drawing.');
  const font = (style: string) => `${style} system-ui, sans-serif`;
  context.font = font('13px');
  const entries = legend.map(({ title, count, colour }) => {
    const text = `${title} ${formatCount(count)}`;
    return { text, colour, width: SWATCH + 7 + context.measureText(text).width + 20 };
  });
  let [x, y] = [0, MARGIN + 52];
  const placed = entries.map((entry) => {
    if (x > 0 && x + entry.width > chart.clientWidth) [x, y] = [0, y + LINE];
    const place = { ...entry, x: MARGIN + x, y };
    x += entry.width;
    return place;
  });
  const top = y + LINE + 8;
  canvas.width = chart.width + 2 * MARGIN * scale;
  canvas.height = chart.height + (top + MARGIN) * scale;
  context.fillStyle = colour('panel');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, MARGIN * scale, top * scale);
  context.scale(scale, scale);
  context.textBaseline = 'top';
  const write = (text: string, colourName: string, style: string, left: number, above: number) => {
    context.font = font(style);
    context.fillStyle = colour(colourName);
    context.fillText(text, left, above);
  };
  write(title, 'text', '600 18px', MARGIN, MARGIN);
  write(caption, 'muted', '13px', MARGIN, MARGIN + 26);
  for (const entry of placed) {
    context.fillStyle = colour(entry.colour);
    context.fillRect(entry.x, entry.y + 2, SWATCH, SWATCH);
    write(entry.text, 'text', '13px', entry.x + SWATCH + 7, entry.y);
  }
  // Chromium delays toBlob for seconds while anything on the page is animated.
  const [, base64 = ''] = canvas.toDataURL('image/png').split(',');
  return new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], { type: 'image/png' });
}
