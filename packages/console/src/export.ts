/** Files and commands that leave the console: CSV, curl, PNG. */
import { h } from './dom.ts';
import { formatCount } from './format.ts';
import { type Points, total } from './points.ts';
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
  return curl(query, 'timeline', `&timezone=${encodeURIComponent(timezone)}`);
}

export function attackTypesCurl(query: StatisticsQuery): string {
  return curl(query, 'attack/type', '');
}

function curl({ origin, project, from, to, hosts }: StatisticsQuery, path: string, timezone: string): string {
  const filter = hosts.map((id) => `&hosts=${id}`).join('');
  const url = `${origin}/v1/${project}/waf/event/${path}?from=${from}&to=${to}${timezone}${filter}`;
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
const HEAD = 64;

/** The timeline as a PNG with title, range and legend. */
export function timelinePng(chart: HTMLCanvasElement, title: string, caption: string, points: Points): Blob {
  const scale = chart.width / chart.clientWidth;
  const canvas = document.createElement('canvas');
  canvas.width = chart.width + 2 * MARGIN * scale;
  canvas.height = chart.height + (HEAD + 2 * MARGIN) * scale;
  const context = canvas.getContext('2d');
  if (context === null) throw new Error('The browser does not support canvas drawing.');
  context.fillStyle = colour('panel');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, MARGIN * scale, (HEAD + MARGIN) * scale);
  context.scale(scale, scale);
  context.textBaseline = 'top';
  const write = (text: string, colourName: string, font: string, x: number, y: number) => {
    context.font = `${font} system-ui, sans-serif`;
    context.fillStyle = colour(colourName);
    context.fillText(text, x, y);
  };
  write(title, 'text', '600 18px', MARGIN, MARGIN);
  write(caption, 'muted', '13px', MARGIN, MARGIN + 26);
  context.textAlign = 'right';
  const right = chart.clientWidth + MARGIN;
  write(`Requests ${formatCount(total(points.requests))}`, 'accent', '600 13px', right, MARGIN);
  write(`Attacks ${formatCount(total(points.attacks))}`, 'attack', '600 13px', right, MARGIN + 22);
  // Chromium delays toBlob for seconds while anything on the page is animated.
  const [, base64 = ''] = canvas.toDataURL('image/png').split(',');
  return new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], { type: 'image/png' });
}
