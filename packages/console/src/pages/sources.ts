/** The log sources: whether they report, and what was dropped. */
import type { Source } from '@wafstat/client';
import type { App, Page } from '../app.ts';
import { fill, h } from '../dom.ts';
import { ago, formatCount, formatTime, share } from '../format.ts';
import { pageHead } from '../parts/shell.ts';
import { loader } from '../parts/states.ts';
import { type Cell, numbers, stateLabel, table } from '../parts/table.ts';
import { total } from '../points.ts';
import { firstRun } from './first-run.ts';

/** Most sites have at least one request per hour. */
const SILENT_MS = 3_600_000;

export function sourcesPage(app: App): Page {
  const client = app.api.client(app.project.id);
  const list = h('div', { class: 'content' }, h('div', { class: 'skeleton block' }));
  const element = h('div', { class: 'page' }, pageHead('h1', 'Sources'), list);

  async function read(signal: AbortSignal): Promise<void> {
    const { items } = await client.sources({ signal });
    if (items.length > 0)
      fill(list, table('Sources', COLUMNS, items.map(row)), hostHint(items), reasons(items));
    else if (list.querySelector('.first-run') === null) fill(list, firstRun(app));
  }
  const { load, abort } = loader(app, read, list);

  function row({ name, format, hosts, events, without_host, ...rest }: Source): Cell[] {
    const { dropped, first_seen, last_seen } = rest;
    const now = app.now();
    const lost = total(Object.values(dropped));
    const silent = last_seen === null || now - last_seen > SILENT_MS;
    return [
      h('strong', { class: 'cut' }, name),
      stateLabel(silent ? 'silent' : 'active', silent ? 'Silent' : 'Reporting'),
      last_seen === null
        ? 'never'
        : h('span', { title: formatTime(last_seen, app.offsetMs()) }, ago(last_seen, now)),
      first_seen === null ? 'never' : formatTime(first_seen, app.offsetMs()),
      h('code', {}, format),
      formatCount(hosts.length),
      formatCount(events),
      h('span', { class: without_host > 0 ? 'attack' : 'faint' }, formatCount(without_host)),
      h('span', { class: lost > 0 ? 'attack' : 'faint' }, formatCount(lost)),
    ];
  }

  function reasons(items: readonly Source[]): HTMLElement | null {
    const rows = items.flatMap(({ name, events, dropped }) => {
      const read = events + total(Object.values(dropped));
      return Object.entries(dropped)
        .toSorted(([, a], [, b]) => b - a)
        .map(([reason, n]): Cell[] => [
          name,
          h(
            'span',
            {},
            `${app.session.drop_reasons[reason] ?? reason} `,
            h('code', { class: 'faint' }, reason),
          ),
          formatCount(n),
          share(n, read),
        ]);
    });
    if (rows.length === 0) return h('p', { class: 'hint' }, 'All records were counted; none were dropped.');
    const columns = ['Source', 'Reason', ...numbers('Records', 'Share')];
    return h(
      'section',
      {},
      pageHead('h2', 'Dropped records'),
      table('Dropped records by reason', columns, rows),
    );
  }

  return { element, title: 'Sources', show: load, refresh: load, leave: abort };
}

/** How to fix records without a host; null if there are none. */
function hostHint(items: readonly Source[]): HTMLElement | null {
  const records = total(items.map(({ without_host }) => without_host));
  if (records === 0) return null;
  const counted = total(items.map(({ events }) => events));
  return h(
    'p',
    { class: 'hint' },
    `${formatCount(records)} of ${formatCount(counted)} records have no registered host, so they count in the project's total only. `,
    'Add the host to the log format (nginx: ',
    h('code', {}, 'log_format'),
    ' with ',
    h('code', {}, '$host'),
    ', Apache: ',
    h('code', {}, '%v'),
    '), or pass ',
    h('code', {}, '--host NAME'),
    '. If the log has it, add the host on the Hosts page, or raise ',
    h('code', {}, '--hosts-max'),
    '.',
  );
}

const COLUMNS = [
  ...['Source', 'State', 'Latest event', 'Earliest event', 'Format'],
  ...numbers('Hosts', 'Counted', 'Without host', 'Dropped'),
];
