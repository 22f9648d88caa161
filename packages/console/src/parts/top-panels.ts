/** The sources, URLs, rules and countries of the most attacks. */
import {
  type BoundedCount,
  type Client,
  type TopAttacks,
  type TopAttacksQuery,
  type UrlCount,
  WafstatError,
} from '@wafstat/client';
import type { App } from '../app.ts';
import { CATEGORY_NAMES } from '../categories.ts';
import { button, fill, h, refill } from '../dom.ts';
import { csv, download, topCurl } from '../export.ts';
import { formatCount, formatRange } from '../format.ts';
import { ruleUrl } from '../rules.ts';
import type { TimeRange } from '../time-range.ts';
import { command, copyButton } from './copy.ts';
import { panel } from './panel.ts';
import { tableHead } from './table.ts';

type Item = BoundedCount & Partial<UrlCount>;
type List = TopAttacks<Item>;

const ROWS_MAX = 10;

const KINDS = {
  sources: { path: 'ip', title: 'Top sources', one: 'source', many: 'sources' },
  urls: { path: 'url', title: 'Top URLs', one: 'URL', many: 'URLs' },
  rules: { path: 'rule', title: 'Top rules', one: 'rule', many: 'rules' },
  countries: { path: 'country', title: 'Top countries', one: 'country', many: 'countries' },
} as const;

type Name = keyof typeof KINDS;
const NAMES = Object.keys(KINDS) as Name[];

export type TopLists = Readonly<Record<Name, List | Refusal>>;

/** There is too much data. During a flood of URLs, the other lists are still there. */
type Refusal = WafstatError & { status: 400 };

export async function readTopLists(client: Client, query: TopAttacksQuery): Promise<TopLists> {
  const top = { ...query, top: ROWS_MAX };
  const [sources, urls, rules, countries] = await Promise.all([
    client.topIps(top).catch(refusal),
    client.topUrls(top).catch(refusal),
    client.topRules(top).catch(refusal),
    client.topCountries(top).catch(refusal),
  ]);
  return { sources, urls, rules, countries };
}

function refusal(failure: unknown): Refusal {
  if (isRefusal(failure)) return failure;
  throw failure;
}

function isRefusal(failure: unknown): failure is Refusal {
  return failure instanceof WafstatError && failure.status === 400;
}

export interface TopPanels {
  element: HTMLElement;
  show(lists: TopLists, range: TimeRange): void;
}

export function topPanels(app: App): TopPanels {
  const panels = NAMES.map((name) => ({ name, ...topPanel(app, name) }));
  const element = h('div', { class: 'tops' }, ...panels.map((one) => one.element));
  return {
    element,
    show(lists, range) {
      for (const { name, element: one, show } of panels) {
        const list = lists[name];
        // Few logs name countries.
        one.hidden = name === 'countries' && !isRefusal(list) && list.attacks === 0;
        show(list, range);
      }
    },
  };
}

function topPanel(app: App, name: Name) {
  const { path, title, one, many } = KINDS[name];
  const { element, body, addAction, addDrawer } = panel(title, `top-list ${name}`);
  const curl = command('API call');
  const rows = h('tbody', {}, ...Array.from({ length: ROWS_MAX }, skeleton));
  const coverage = h('p', { class: 'hint' });
  let shown: List | null = null;
  const head = tableHead([one, 'Bar', 'Attacks', 'Copy'], { class: 'offscreen' });
  body.append(h('table', { class: 'bars' }, head, rows), coverage);
  addAction('download', 'CSV', () => {
    if (shown) download(`${name}.csv`, topCsv(shown, name));
  });
  addDrawer('code', 'curl', curl.element);
  return { element, show };

  function show(list: List | Refusal, range: TimeRange): void {
    const { hosts, category } = app.view();
    const query = { ...range, origin: location.origin, project: app.project.id, hosts };
    curl.set(topCurl(query, path, ROWS_MAX, category));
    shown = isRefusal(list) ? null : list;
    if (isRefusal(list)) {
      refill(rows);
      fill(coverage, `No list: ${list.message}`);
      return;
    }
    const most = Math.max(1, ...list.items.map(({ num }) => num));
    refill(rows, ...list.items.map((item) => row(item, most)));
    fill(coverage, coverageOf(list));
  }

  /** `2,631 attacks (SQL injection), about 7,000 sources, 14 Nov, 20:00 – 22:00`. */
  function coverageOf({ attacks, total, distinct_is, from, to }: List): string {
    const { category } = app.view();
    if (attacks === 0) return `No attacks with a known ${one}`;
    const about = { exact: '', estimate: 'about ', minimum: 'at least ' }[distinct_is];
    return [
      `${formatCount(attacks)} ${attacks === 1 ? 'attack' : 'attacks'}${category === null ? '' : ` (${CATEGORY_NAMES[category]})`}`,
      `${about}${formatCount(total)} ${total === 1 ? one : many}`,
      formatRange(from, to, app.offsetMs()),
    ].join(', ');
  }

  function row(item: Item, most: number): HTMLElement {
    const { key, num, error, host = '' } = item;
    const text = `${host}${key}`;
    const bar = h('span', { class: 'bar' });
    bar.style.width = `${(num / most) * 100}%`;
    return h(
      'tr',
      {},
      h('th', { scope: 'row' }, h('span', { class: 'cut', title: text }, ...labelOf(item))),
      h('td', { class: 'track' }, bar),
      h(
        'td',
        { class: 'number' },
        formatCount(num),
        error > 0 && h('span', { class: 'faint' }, ` up to +${formatCount(error)}`),
      ),
      h('td', { class: 'copy' }, copyButton(text)),
    );
  }

  function labelOf({ key, host = '', host_id }: Item): (Node | string)[] {
    if (name === 'countries') return [h('span', {}, countryName(key)), h('code', {}, key)];
    const href = name === 'rules' ? ruleUrl(key) : null;
    if (href !== null) {
      const props = { href, target: '_blank', rel: 'noopener noreferrer', 'data-focus': `rule ${key}` };
      return [h('a', { ...props, title: `Rule ${key} of the OWASP core rule set` }, h('code', {}, key))];
    }
    const id = host_id ?? null;
    if (id === null) return [h('code', {}, key)];
    const props = { class: 'link', title: `Show only ${host}`, 'data-focus': `host ${id} ${key}` };
    return [button(props, () => app.go({ hosts: [id] }), host), h('code', {}, key)];
  }
}

function skeleton(): HTMLElement {
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, h('span', { class: 'skeleton' })),
    h('td', { class: 'track' }),
    h('td', {}),
    h('td', {}),
  );
}

function countryName(code: string): string {
  try {
    return new Intl.DisplayNames('en', { type: 'region' }).of(code) ?? code;
  } catch {
    return code;
  }
}

function topCsv({ items }: List, name: Name): string {
  const isUrls = name === 'urls';
  return csv([
    [...(isUrls ? ['host'] : []), KINDS[name].one.toLowerCase(), 'attacks', 'error'],
    ...items.map(({ key, host = '', num, error }) => [...(isUrls ? [host] : []), key, num, error]),
  ]);
}
