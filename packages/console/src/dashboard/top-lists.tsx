/** The sources, URLs, rules, countries and networks of the most attacks. */
import type {
  BoundedCount,
  Client,
  Location,
  NetworkCount,
  TopAttacks,
  TopAttacksQuery,
  UrlCount,
} from '@wafstat/client';
import { ruleName } from '@wafstat/client';
import { type App, useApp, useProject } from '../app.ts';
import { csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { hasFilter } from '../filters.ts';
import { clock, day, exactDuration, formatCount, formatRange, plural } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { FilterValue } from '../parts/filter-value.tsx';
import { copyItems } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking, TOP_ROWS } from '../parts/ranking.tsx';
import type { TimeRange } from '../time-range.ts';

type Item = BoundedCount & Partial<UrlCount & NetworkCount> & Location;
type List = TopAttacks<Item>;

/** By the field that their values filter. The API has no filter by network. */
export const KINDS = {
  source: { path: 'ip', call: 'topIps', one: 'source', many: 'sources' },
  url: { path: 'url', call: 'topUrls', one: 'URL', many: 'URLs' },
  rule: { path: 'rule', call: 'topRules', one: 'rule', many: 'rules' },
  country: { path: 'country', call: 'topCountries', one: 'country', many: 'countries' },
  network: { path: 'network', call: 'topNetworks', one: 'network', many: 'networks' },
} as const;

export type TopListName = keyof typeof KINDS;

export function readTopList(client: Client, kind: TopListName, query: TopAttacksQuery): Promise<List> {
  return client[KINDS[kind].call]({ top: TOP_ROWS, ...query });
}

interface TopListProps {
  kind: TopListName;
  /** Null: still loading, or it failed. */
  data: List | null;
  /** Why the latest load failed. During a flood of URLs, there may be too much data for one list. */
  failure: unknown;
  range: TimeRange;
}

export function TopListPanel({ kind, data: list, failure, range }: TopListProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const project = useProject();
  const { path, many } = KINDS[kind];
  const name = many.toLowerCase();
  // Few logs name countries, and some files of --geoip have no networks.
  if ((kind === 'country' || kind === 'network') && (list === null || list.attacks === 0)) return null;
  const { hosts, filters } = view;
  const query = { ...range, origin: location.origin, project: project.id, hosts, filters };
  const parameters = { top: String(TOP_ROWS) };
  const save = () => {
    if (list !== null) download(fileName(project.name, name, range, zone, 'csv'), topCsv(list, kind));
  };
  return (
    <Panel
      title={`Top ${many}`}
      class={`top-list ${name}`}
      failure={failure}
      extras={list !== null && <Hours list={list} range={range} />}
      exports={[
        { label: 'Download CSV', run: save },
        ...copyItems(
          curlCommand({ ...query, path: `overviews/attack/${path}`, parameters }),
          wafstatCommand(`top ${name} --top ${TOP_ROWS}`, query),
        ),
      ]}
    >
      <TopRows kind={kind} list={list} isLoading={list === null && failure === null} />
      {list !== null && (
        <p class="hint">
          {coverageText(kind, list, range, app)}
          {list.total > list.items.length && (
            <Button kind="quiet small all" onClick={() => go({ open: { kind, value: null } })}>
              {`Show all ${formatCount(list.total)}`}
              <span class="offscreen">{` ${many}`}</span>
            </Button>
          )}
        </p>
      )}
    </Panel>
  );
}

interface TopRowsProps {
  kind: TopListName;
  list: List | null;
  isLoading: boolean;
}

export function TopRows({ kind, list, isLoading }: TopRowsProps) {
  const most = Math.max(1, ...(list?.items ?? []).map(({ num }) => num));
  return (
    <Ranking columns={[KINDS[kind].one, 'Attacks']} isLoading={isLoading}>
      {list?.items.map((item) => (
        <TopRow key={`${item.host_id} ${item.key}`} kind={kind} item={item} most={most} />
      ))}
    </Ranking>
  );
}

/** The hours that the list covers, where they are not those of the other numbers: it counts more attacks, or fewer. */
export function Hours({ list: { from, to }, range }: { list: TimeRange; range: TimeRange }) {
  const { zone } = useApp();
  if ((from === range.from && to === range.to) || from >= to) return null;
  return (
    <span class="hint" title={formatRange(from, to, zone)}>
      {from > range.from ? `since ${day(from, zone)}, ${clock(from, zone)}` : 'whole hours'}
    </span>
  );
}

/** `2,631 attacks, about 7,000 sources`; why, if hours are missing. */
function coverageText(
  kind: TopListName,
  list: List,
  { from: wanted }: TimeRange,
  { session, now }: App,
): string {
  const { attacks, from, to, shortened } = list;
  const parts =
    attacks === 0
      ? `No attacks with a known ${KINDS[kind].one}`
      : `${plural(attacks, 'attack')}, ${distinctText(kind, list)}`;
  if (from <= wanted) return parts;
  const keptMs = session.top_lists_ms;
  const notKept =
    keptMs === null || wanted >= now() - keptMs
      ? 'earlier hours are not kept'
      : `top lists are kept for ${exactDuration(keptMs)}`;
  if (from >= to) return notKept.charAt(0).toUpperCase() + notKept.slice(1);
  return `${parts}; ${shortened ? 'earlier hours are too large for one list' : notKept}`;
}

function distinctText(kind: TopListName, { total, distinct_is }: List): string {
  const { one, many } = KINDS[kind];
  if (distinct_is === 'minimum') return `${formatCount(total)} or more ${many}`;
  return `${distinct_is === 'estimate' ? 'about ' : ''}${plural(total, one, many)}`;
}

function TopRow({ kind, item, most }: { kind: TopListName; item: Item; most: number }) {
  const { filters } = useApp().view;
  const { key, num, error } = item;
  const isChosen = kind !== 'network' && hasFilter(filters, { field: kind, value: key, isExcluded: false });
  return (
    <tr class={isChosen ? 'chosen' : undefined} data-key={key}>
      <th scope="row">
        <span class="bar" style={{ width: `${(num / most) * 100}%` }} />
        <span class="label">
          <ItemLabel kind={kind} item={item} />
        </span>
      </th>
      <td class="number">
        {formatCount(num)}
        {error > 0 && <span class="faint">{` up to +${formatCount(error)}`}</span>}
      </td>
    </tr>
  );
}

/** The longest path of a top list, in bytes: longer ones are cut. */
const URL_BYTES_MAX = 256;

function ItemLabel({ kind, item }: { kind: TopListName; item: Item }) {
  const { go } = useApp();
  const { key, host = '', host_id = null, country, network_name } = item;
  if (kind === 'network')
    return (
      <span class="cut" title={item.name}>
        <code>{key}</code>
        <span class="meaning">{item.name}</span>
      </span>
    );
  if (kind === 'country') return <FilterValue field="country" value={key} opens="country" />;
  if (kind === 'rule')
    return (
      <FilterValue field="rule" value={key} opens="rule">
        <code>{key}</code>
        <span class="meaning">{ruleName(key)}</span>
      </FilterValue>
    );
  const isCut = kind === 'url' && new TextEncoder().encode(key).length >= URL_BYTES_MAX;
  return (
    <>
      {host_id !== null && (
        <button class="link" type="button" title={`Only ${host}`} onClick={() => go({ hosts: [host_id] })}>
          {host}
        </button>
      )}
      <FilterValue field={kind} value={isCut ? `${key}*` : key} opens={kind}>
        <code>{key}</code>
        {kind === 'source' && (country ?? network_name) !== undefined && (
          <span class="meaning">{[country, network_name].filter(Boolean).join(' ')}</span>
        )}
      </FilterValue>
    </>
  );
}

function topCsv({ items }: List, kind: TopListName): string {
  const isUrls = kind === 'url';
  return csv([
    [...(isUrls ? ['host'] : []), KINDS[kind].one.toLowerCase(), 'attacks', 'error'],
    ...items.map(({ key, host = '', num, error }) => [...(isUrls ? [host] : []), key, num, error]),
  ]);
}
