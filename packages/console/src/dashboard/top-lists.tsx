/** The sources, URLs, rules and countries of the most attacks. */
import {
  type BoundedCount,
  type Client,
  type TopAttacks,
  type TopAttacksQuery,
  type UrlCount,
  WafstatError,
} from '@wafstat/client';
import { useApp, useProject } from '../app.ts';
import { CATEGORY_NAMES } from '../categories.ts';
import { csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { exactDuration, formatCount, formatRange, plural } from '../format.ts';
import { CopyValue } from '../parts/copy.tsx';
import { copyItems } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking, TOP_ROWS } from '../parts/ranking.tsx';
import { sentence } from '../parts/states.tsx';
import { ruleUrl } from '../rules.ts';
import type { TimeRange } from '../time-range.ts';
import { countedCategories, filtersCategories, type View } from '../view.ts';

type Item = BoundedCount & Partial<UrlCount>;
type List = TopAttacks<Item>;

const KINDS = {
  sources: { path: 'ip', title: 'Top sources', one: 'source', many: 'sources' },
  urls: { path: 'url', title: 'Top URLs', one: 'URL', many: 'URLs' },
  rules: { path: 'rule', title: 'Top rules', one: 'rule', many: 'rules' },
  countries: { path: 'country', title: 'Top countries', one: 'country', many: 'countries' },
} as const;

type Name = keyof typeof KINDS;
const NAMES = Object.keys(KINDS) as Name[];

export interface TopLists extends Readonly<Record<Name, List | Refusal>> {
  /** The start of the queried range: lists may begin later. */
  from: number;
}

/** There is too much data. During a flood of URLs, the other lists are still there. */
type Refusal = WafstatError & { status: 400 };

export async function readTopLists(client: Client, query: TopAttacksQuery & TimeRange): Promise<TopLists> {
  const top = { ...query, top: TOP_ROWS };
  const [sources, urls, rules, countries] = await Promise.all([
    client.topIps(top).catch(refusal),
    client.topUrls(top).catch(refusal),
    client.topRules(top).catch(refusal),
    client.topCountries(top).catch(refusal),
  ]);
  return { from: query.from, sources, urls, rules, countries };
}

function refusal(failure: unknown): Refusal {
  if (isRefusal(failure)) return failure;
  throw failure;
}

function isRefusal(failure: unknown): failure is Refusal {
  return failure instanceof WafstatError && failure.status === 400;
}

/** The categories for the calls of top lists; nothing if all count. */
export function attacksFilter(view: View) {
  return filtersCategories(view) ? { attacks: countedCategories(view) } : {};
}

interface TopListPanelsProps {
  lists: TopLists | null;
  /** Why they could not be loaded. */
  failure: unknown;
  range: TimeRange;
}

export function TopListPanels({ lists, failure, range }: TopListPanelsProps) {
  if (lists === null && failure !== null)
    return (
      <Panel title="Top lists" class="top-list">
        <p class="problem">{sentence(failure)}</p>
      </Panel>
    );
  return NAMES.map((name) => (
    <TopListPanel
      key={name}
      name={name}
      list={lists?.[name] ?? null}
      queriedFrom={lists?.from ?? 0}
      range={range}
    />
  ));
}

interface TopListProps {
  name: Name;
  /** Null: still loading. */
  list: List | Refusal | null;
  queriedFrom: number;
  range: TimeRange;
}

function TopListPanel({ name, list, queriedFrom, range }: TopListProps) {
  const { view, zone } = useApp();
  const project = useProject();
  const { path, title, one } = KINDS[name];
  const counted = list === null || isRefusal(list) ? null : list;
  // Few logs name countries.
  if (name === 'countries' && (list === null || counted?.attacks === 0)) return null;
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const names = attacksFilter(view).attacks ?? [];
  const parameters = { top: String(TOP_ROWS), ...(names.length === 0 ? {} : { attacks: names.join() }) };
  const command = ['top', name, `--top ${TOP_ROWS}`, ...names.map((category) => `--category ${category}`)];
  const save = () => {
    if (counted !== null) download(fileName(project.name, name, range, zone, 'csv'), topCsv(counted, name));
  };
  const most = Math.max(1, ...(counted?.items ?? []).map(({ num }) => num));
  return (
    <Panel
      title={title}
      class={`top-list ${name}`}
      exports={[
        { label: 'Download CSV', run: save },
        ...copyItems(
          curlCommand({ ...query, path: `overviews/attack/${path}`, parameters }),
          wafstatCommand(command.join(' '), query),
        ),
      ]}
    >
      <Ranking columns={[one, 'Attacks']} isLoading={list === null}>
        {counted?.items.map((item) => (
          <TopRow key={`${item.host_id} ${item.key}`} name={name} item={item} most={most} />
        ))}
      </Ranking>
      {list !== null && (
        <p class="hint" title={counted === null ? undefined : formatRange(counted.from, counted.to, zone)}>
          {isRefusal(list) ? (
            `No list: ${list.message}`
          ) : (
            <Coverage name={name} list={list} queriedFrom={queriedFrom} />
          )}
        </p>
      )}
    </Panel>
  );
}

interface CoverageProps {
  name: Name;
  list: List;
  queriedFrom: number;
}

/** `2,631 attacks (SQL injection), about 7,000 sources, 14 Nov, 20:00 – 22:00 (whole hours)`; why, if hours are missing. */
function Coverage({ name, list, queriedFrom }: CoverageProps) {
  const { session, view, zone, now } = useApp();
  const { attacks, from, to, shortened } = list;
  // Lines break between dates, not in them.
  const hours = formatRange(from, to, zone).replaceAll(/(\d) (?=[A-Z])/g, '$1\u00a0');
  const isComplete = from <= queriedFrom;
  const parts =
    attacks === 0
      ? [`No attacks with a known ${KINDS[name].one}`]
      : [`${plural(attacks, 'attack')}${filterText(view)}`, distinctText(name, list)];
  if (isComplete) return <>{(attacks === 0 ? parts : [...parts, `${hours} (whole hours)`]).join(', ')}</>;
  const keptMs = session.top_lists_ms;
  const notKept =
    keptMs === null || queriedFrom >= now() - keptMs
      ? 'earlier hours are not kept'
      : `top lists are kept for ${exactDuration(keptMs)}`;
  if (from >= to) return <>{notKept.charAt(0).toUpperCase() + notKept.slice(1)}</>;
  return (
    <>
      {parts.join(', ')}
      <span class="missing-hours">
        {`Only ${hours}: ${shortened ? 'earlier hours are too large for one list' : notKept}`}
      </span>
    </>
  );
}

function distinctText(name: Name, { total, distinct_is }: List): string {
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

function TopRow({ name, item, most }: { name: Name; item: Item; most: number }) {
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
function ItemLabel({ name, item: { key, host = '', host_id = null } }: { name: Name; item: Item }) {
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

function topCsv({ items }: List, name: Name): string {
  const isUrls = name === 'urls';
  return csv([
    [...(isUrls ? ['host'] : []), KINDS[name].one.toLowerCase(), 'attacks', 'error'],
    ...items.map(({ key, host = '', num, error }) => [...(isUrls ? [host] : []), key, num, error]),
  ]);
}
