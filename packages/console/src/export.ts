/** Files and commands that leave the console: CSV, PNG, curl and command line. */
import { apiParameters, commandOptions, type Filter } from './filters.ts';
import { formatCount } from './format.ts';
import { colour } from './theme.ts';
import type { TimeRange } from './time-range.ts';
import { toLocal, type Zone } from './zone.ts';

/** CSV by RFC 4180. */
export function csv(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((row) => `${row.map(csvField).join(',')}\r\n`).join('');
}

/**
 * Spreadsheets run text that looks like a formula, and attackers choose host names: an apostrophe prevents it. Some divide
 * lines at semicolons.
 */
function csvField(field: string | number): string {
  if (typeof field === 'number') return String(field);
  const text = field.replace(/^(?=[=+\-@\t\r\n])|(?<=[;\t\r\n])(?=[=+\-@])/g, "'");
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A call of the API, as a command. */
interface CommandQuery extends TimeRange {
  origin: string;
  project: string;
  hosts: readonly string[];
  filters?: readonly Filter[];
  /** Path below `waf/`. */
  path: string;
  /** Further parameters. */
  parameters?: Readonly<Record<string, string>>;
}

export function curlCommand({
  origin,
  project,
  from,
  to,
  hosts,
  filters = [],
  path,
  parameters = {},
}: CommandQuery): string {
  const lists = Object.entries(apiParameters(filters)).flatMap(([name, values]) =>
    values.map((value) => [name, value] as const),
  );
  const query = [
    `from=${from}&to=${to}`,
    ...hosts.map((id) => `hosts=${id}`),
    ...[...lists, ...Object.entries(parameters)].map(([name, value]) => `${name}=${encoded(value)}`),
  ];
  return `curl -H "X-Auth-Token: $TOKEN" '${origin}/v1/${project}/waf/${path}?${query.join('&')}'`;
}

/** For a URL in a shell command: an apostrophe would end the URL, and attackers choose it. */
function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll("'", '%27');
}

/**
 * The same query with the command line. `command` is such as `timeline --by category`. Without `--url`, the default profile
 * has the URL and the credentials.
 */
export function wafstatCommand(command: string, query: Omit<CommandQuery, 'path' | 'origin'>): string {
  const { project, from, to, hosts, filters = [] } = query;
  const options = [`--project ${project}`, `--from ${from}`, `--to ${to}`];
  const selection = [...hosts.map((id) => `--host ${id}`), ...commandOptions(filters)];
  return ['wafstat', command, ...options, ...selection].join(' ');
}

/** `shop-timeline-20261114T0000-20261115T0000.csv`, in the selected time zone. */
export function fileName(
  project: string,
  what: string,
  range: TimeRange,
  zone: Zone,
  ending: string,
): string {
  const stamp = (time: number) =>
    new Date(toLocal(time, zone)).toISOString().slice(0, 16).replaceAll(/[-:]/g, '');
  const name = project.replaceAll(/[^\p{L}\p{N}._-]+/gu, '-');
  return `${name}-${what}-${stamp(range.from)}-${stamp(range.to)}.${ending}`;
}

/** Saves the content as a file. */
export function download(name: string, content: Blob | string): void {
  const blob =
    typeof content === 'string' ? new Blob([content], { type: 'text/csv;charset=utf-8' }) : content;
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // By then the browser has started to read it.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const MARGIN = 24;
const LINE = 22;
const SWATCH = 10;

interface LegendEntry {
  title: string;
  count: number;
  /** The variable of the style sheet. */
  colour: string;
}

/** The panes of the chart as a PNG with title, range and legend. */
export function chartPng(
  panes: readonly HTMLCanvasElement[],
  title: string,
  caption: string,
  legend: readonly LegendEntry[],
): Blob {
  const width = Math.max(0, ...panes.map(({ clientWidth }) => clientWidth));
  const scale = (panes[0]?.width ?? 1) / Math.max(1, width);
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  if (context === null) throw new Error('The browser does not support canvas drawing.');
  const font = (style: string) => `${style} system-ui, sans-serif`;
  context.font = font('13px');
  const entries = legend.map(({ title: name, count, colour: key }) => {
    const text = `${name} ${formatCount(count)}`;
    return { text, colour: key, width: SWATCH + 7 + context.measureText(text).width + 20 };
  });
  let [x, y] = [0, MARGIN + 52];
  const placed = entries.map((entry) => {
    if (x > 0 && x + entry.width > width) [x, y] = [0, y + LINE];
    const place = { ...entry, x: MARGIN + x, y };
    x += entry.width;
    return place;
  });
  const top = y + LINE + 8;
  const height = panes.reduce((sum, pane) => sum + pane.height, 0);
  canvas.width = (width + 2 * MARGIN) * scale;
  canvas.height = height + (top + MARGIN) * scale;
  context.fillStyle = colour('panel');
  context.fillRect(0, 0, canvas.width, canvas.height);
  let below = top * scale;
  for (const pane of panes) {
    context.drawImage(pane, MARGIN * scale, below);
    below += pane.height;
  }
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
