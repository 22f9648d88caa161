/** The sources, URLs, rules and countries of the most attacks. */
import type { BoundedCount, Client, TopAttacks, TopAttacksQuery, UrlCount } from '@wafstat/client';
import { type App, useApp, useProject } from '../app.ts';
import { CATEGORY_NAMES } from '../categories.ts';
import { csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { clock, day, exactDuration, formatCount, formatRange, plural } from '../format.ts';
import { CopyValue } from '../parts/copy.tsx';
import { copyItems } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking, TOP_ROWS } from '../parts/ranking.tsx';
import { ruleUrl } from '../rules.ts';
import type { TimeRange } from '../time-range.ts';
import { countedCategories, filtersCategories, type View } from '../view.ts';

type Item = BoundedCount & Partial<UrlCount>;
type List = TopAttacks<Item>;

const KINDS = {
  sources: { path: 'ip', call: 'topIps', title: 'Top sources', one: 'source', many: 'sources' },
  urls: { path: 'url', call: 'topUrls', title: 'Top URLs', one: 'URL', many: 'URLs' },
  rules: { path: 'rule', call: 'topRules', title: 'Top rules', one: 'rule', many: 'rules' },
  countries: {
    path: 'country',
    call: 'topCountries',
    title: 'Top countries',
    one: 'country',
    many: 'countries',
  },
} as const;

export type TopListName = keyof typeof KINDS;

export function readTopList(client: Client, name: TopListName, query: TopAttacksQuery): Promise<List> {
  return client[KINDS[name].call]({ ...query, top: TOP_ROWS });
}

/** The categories for the calls of top lists; nothing if all count. */
export function attacksFilter(view: View) {
  return filtersCategories(view) ? { attacks: countedCategories(view) } : {};
}

interface TopListProps {
  name: TopListName;
  /** Null: still loading, or it failed. */
  data: List | null;
  /** Why the latest load failed. During a flood of URLs, there may be too much data for one list. */
  failure: unknown;
  range: TimeRange;
}

export function TopListPanel({ name, data: list, failure, range }: TopListProps) {
  const app = useApp();
  const { view, zone } = app;
  const project = useProject();
  const { path, title, one } = KINDS[name];
  // Few logs name countries.
  if (name === 'countries' && (list === null || list.attacks === 0)) return null;
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const names = attacksFilter(view).attacks ?? [];
  const parameters = { top: String(TOP_ROWS), ...(names.length === 0 ? {} : { attacks: names.join() }) };
  const command = ['top', name, `--top ${TOP_ROWS}`, ...names.map((category) => `--category ${category}`)];
  const save = () => {
    if (list !== null) download(fileName(project.name, name, range, zone, 'csv'), topCsv(list, name));
  };
  const most = Math.max(1, ...(list?.items ?? []).map(({ num }) => num));
  return (
    <Panel
      title={title}
      class={`top-list ${name}`}
      failure={failure}
      extras={list !== null && <Hours list={list} range={range} />}
      exports={[
        { label: 'Download CSV', run: save },
        ...copyItems(
          curlCommand({ ...query, path: `overviews/attack/${path}`, parameters }),
          wafstatCommand(command.join(' '), query),
        ),
      ]}
    >
      <Ranking columns={[one, 'Attacks']} isLoading={list === null && failure === null}>
        {list?.items.map((item) => (
          <TopRow key={`${item.host_id} ${item.key}`} name={name} item={item} most={most} />
        ))}
      </Ranking>
      {list !== null && <p class="hint">{coverageText(name, list, range, app)}</p>}
    </Panel>
  );
}

/** The hours that the list covers, where they are not those of the other numbers: it counts more attacks, or fewer. */
function Hours({ list: { from, to }, range }: { list: List; range: TimeRange }) {
  const { zone } = useApp();
  if ((from === range.from && to === range.to) || from >= to) return null;
  return (
    <span class="hint" title={formatRange(from, to, zone)}>
      {from > range.from ? `since ${day(from, zone)}, ${clock(from, zone)}` : 'whole hours'}
    </span>
  );
}

/** `2,631 attacks (SQL injection), about 7,000 sources`; why, if hours are missing. */
function coverageText(
  name: TopListName,
  list: List,
  { from: wanted }: TimeRange,
  { session, view, now }: App,
): string {
  const { attacks, from, to, shortened } = list;
  const parts =
    attacks === 0
      ? `No attacks with a known ${KINDS[name].one}`
      : `${plural(attacks, 'attack')}${filterText(view)}, ${distinctText(name, list)}`;
  if (from <= wanted) return parts;
  const keptMs = session.top_lists_ms;
  const notKept =
    keptMs === null || wanted >= now() - keptMs
      ? 'earlier hours are not kept'
      : `top lists are kept for ${exactDuration(keptMs)}`;
  if (from >= to) return notKept.charAt(0).toUpperCase() + notKept.slice(1);
  return `${parts}; ${shortened ? 'earlier hours are too large for one list' : notKept}`;
}

function distinctText(name: TopListName, { total, distinct_is }: List): string {
  const { one, many } = KINDS[name];
  if (distinct_is === 'minimum') return `${formatCount(total)} or more ${many}`;
  return `${distinct_is === 'estimate' ? 'about ' : ''}${plural(total, one, many)}`;
}

function filterText(view: View): string {
  if (!filtersCategories(view)) return '';
  const [first, ...others] = countedCategories(view);
  if (first === undefined) return '';
  return others.length === 0 ? ` (${CATEGORY_NAMES[first]})` : ` (${others.length + 1} categories)`;
}

function TopRow({ name, item, most }: { name: TopListName; item: Item; most: number }) {
  const { num, error } = item;
  return (
    <tr>
      <th scope="row">
        <span class="bar" style={{ width: `${(num / most) * 100}%` }} />
        <span class="label">
          <ItemLabel name={name} item={item} />
        </span>
      </th>
      <td class="number">
        {formatCount(num)}
        {error > 0 && <span class="faint">{` up to +${formatCount(error)}`}</span>}
      </td>
    </tr>
  );
}

/** The API cannot filter by these values, so they are copied. A host filters, and a rule links to its definition. */
function ItemLabel({ name, item: { key, host = '', host_id = null } }: { name: TopListName; item: Item }) {
  const { go } = useApp();
  if (name === 'countries')
    return (
      <CopyValue text={key} name={`${countryName(key)} ${key}`}>
        {countryName(key)} <code>{key}</code>
      </CopyValue>
    );
  const value = (
    <CopyValue text={`${host}${key}`}>
      <code>{key}</code>
    </CopyValue>
  );
  const href = name === 'rules' ? ruleUrl(key) : null;
  if (href !== null)
    return (
      <>
        {value}
        <a
          href={href}
          target="_blank"
          rel="noopener noreferrer"
          title={`Rule ${key} of the OWASP Core Rule Set`}
        >
          <span aria-hidden="true">↗</span>
          <span class="offscreen">{`Definition of rule ${key}`}</span>
        </a>
      </>
    );
  if (host_id === null) return value;
  return (
    <>
      <button class="link" type="button" title={`Filter by ${host}`} onClick={() => go({ hosts: [host_id] })}>
        {host}
      </button>
      {value}
    </>
  );
}

function countryName(code: string): string {
  try {
    return new Intl.DisplayNames('en', { type: 'region' }).of(code) ?? code;
  } catch {
    return code;
  }
}

function topCsv({ items }: List, name: TopListName): string {
  const isUrls = name === 'urls';
  return csv([
    [...(isUrls ? ['host'] : []), KINDS[name].one.toLowerCase(), 'attacks', 'error'],
    ...items.map(({ key, host = '', num, error }) => [...(isUrls ? [host] : []), key, num, error]),
  ]);
}
