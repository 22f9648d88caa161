/** Requests and attacks at a glance: how many, when, of which category, on which hosts, from where. */
import { useMemo, useRef } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { totalsOf } from '../counts.ts';
import { AttacksPanel } from '../dashboard/attacks-panel.tsx';
import { CategoriesPanel } from '../dashboard/categories-panel.tsx';
import {
  type Dashboard,
  type DashboardQuery,
  readDashboard,
  readHostLines,
  readHosts,
  statisticsQuery,
} from '../dashboard/data.ts';
import { Drawer } from '../dashboard/drawer.tsx';
import { Filters } from '../dashboard/filters.tsx';
import { HostsPanel } from '../dashboard/hosts-panel.tsx';
import { type Comparison, KeyFigures } from '../dashboard/key-figures.tsx';
import { ErrorPagesPanel, ResponsesPanel } from '../dashboard/responses-panel.tsx';
import { Situation } from '../dashboard/situation.tsx';
import { TimelinePanel } from '../dashboard/timeline-panel.tsx';
import { readTopList, type TopListName, TopListPanel } from '../dashboard/top-lists.tsx';
import { apiFilter, keptFilters } from '../filters.ts';
import { hostTotals, withoutHost } from '../host-totals.ts';
import { Controls } from '../parts/controls.tsx';
import { HostPicker } from '../parts/host-picker.tsx';
import { Panel } from '../parts/panel.tsx';
import { Message, Skeleton } from '../parts/states.tsx';
import { TvButton, TvHead } from '../parts/tv.tsx';
import { endsNow, resolveRange } from '../time-range.ts';
import { type Query, useQuery } from '../use-query.ts';
import { FirstRun } from './first-run.tsx';

/** Lists, hosts and the peak are many bytes, and change little. */
const LISTS_REFRESH_MS = 60_000;
/** The longest range of a situation. */
const SITUATION_MS_MAX = 92 * 86_400_000;

export function DashboardPage() {
  const { view } = useApp();
  const data = useDashboard();
  const { now, names } = data;
  if (data.isEmpty)
    return (
      <div class="page dashboard">
        <FirstRun />
      </div>
    );
  return (
    <div class={`page dashboard ${view.tv ? 'tv' : ''}`}>
      <h1 class="offscreen">Dashboard</h1>
      {view.tv ? (
        <TvHead query={now} />
      ) : (
        <Controls query={now}>
          <HostPicker names={names} />
          <TvButton />
        </Controls>
      )}
      <Filters names={names} kept={now.data?.kept} />
      <div class={`content ${now.isLoading ? 'stale' : ''}`} aria-busy={data.isLoading}>
        <Situation query={data.situation} />
        <KeyFigures dashboard={now} comparison={data.comparison} peak={data.peak} hosts={data.hosts} />
        <Panels {...data} />
      </div>
      <Drawer range={data.range} names={names} />
    </div>
  );
}

function Panels(props: ReturnType<typeof useDashboard>) {
  const { now, comparison, situation, hosts, lines, tops, range } = props;
  const { view } = useApp();
  const { data, failure } = now;
  if (data !== null && isQuiet(data))
    return (
      <Message title="No data in this range">
        {view.hosts.length === 0 ? 'Try a longer range.' : 'Try a longer range or other hosts.'}
      </Message>
    );
  return (
    <div class="panels">
      {data === null ? (
        <Panel title="Timeline" class="timeline" failure={failure}>
          {failure === null && <Skeleton />}
        </Panel>
      ) : (
        <TimelinePanel
          now={data}
          before={comparison === 'complete' ? data.before : null}
          lines={lines.data}
          bursts={situation.data?.bursts ?? []}
          annotations={props.annotations}
          failure={failure ?? lines.failure}
        />
      )}
      {data !== null && <CategoriesPanel counts={totalsOf(data.counts.attacks)} range={range} />}
      <div class="tops">
        <HostsPanel hosts={hosts.data} failure={hosts.failure} range={range} />
        {tops.map((top) => (
          <TopListPanel key={top.kind} {...top} range={range} />
        ))}
      </div>
      {!view.tv && data !== null && (
        <>
          <ResponsesPanel now={data} annotations={props.annotations} failure={failure} />
          {hasCodes(data) && (
            <ErrorPagesPanel range={range} queryKey={props.rangeKey} wait={props.isLoading} />
          )}
        </>
      )}
      {!view.tv && <AttacksPanel range={range} wait={props.isLoading} refresh={props.isLive} />}
    </div>
  );
}

function isQuiet({ counts }: Dashboard): boolean {
  return [counts.requests, ...Object.values(counts.attacks)].flat().every((n) => n === 0);
}

/** Requests by response code are not filtered. */
function hasCodes({ counts: { responses } }: Dashboard): boolean {
  return [responses['2xx'], responses['4xx'], responses['5xx']].flat().some((n) => n > 0);
}

/** Separate queries, so that the chart is drawn first: hosts and top lists can take longer. */
function useDashboard() {
  const { api, session, view, zone, now: clock } = useApp();
  const project = useProject();
  const { selectedRange, compared, hosts: selectedHosts, filters } = view;
  const names = useRef(new Map<string, string>());
  const isLive = view.live && endsNow(selectedRange);
  const kept = keptFilters(filters);
  // Attacks of all categories are loaded, so that a filter by category alone loads only lists and hosts again.
  const key = JSON.stringify([project.id, selectedRange, zone.id, selectedHosts, compared, kept]);
  const filteredKey = `${key} ${JSON.stringify(filters)}`;
  const query = (signal: AbortSignal): DashboardQuery => ({
    api,
    project: project.id,
    selected: selectedRange,
    compared,
    hosts: selectedHosts,
    filters,
    zone,
    now: clock(),
    signal,
  });
  const now = useQuery<Dashboard>(key, (signal, latest) => readDashboard(query(signal), latest), {
    refresh: isLive,
  });
  const later = { refresh: isLive, refreshMs: LISTS_REFRESH_MS, wait: now.isLoading };
  const rangeKey = JSON.stringify([project.id, selectedRange, zone.id, selectedHosts]);
  const situation = useQuery(
    rangeKey,
    (signal) => {
      const { from, to, ...selection } = statisticsQuery(query(signal));
      const range = { from: Math.max(from, to - SITUATION_MS_MAX), to };
      return api.client(project.id).situation({ ...selection, ...range, timezone: zone.id });
    },
    later,
  );
  const hosts = useQuery(filteredKey, (signal) => readHosts(query(signal)), later);
  const isByHost = view.by === 'host';
  const lines = useQuery(
    `${filteredKey} ${isByHost}`,
    async (signal) => (isByHost && hosts.data ? readHostLines(query(signal), hosts.data.items) : null),
    { ...later, wait: later.wait || (isByHost && hosts.isLoading) },
  );
  const readTop = (kind: TopListName, signal: AbortSignal) =>
    readTopList(api.client(project.id), kind, { ...statisticsQuery(query(signal)), ...apiFilter(filters) });
  const useTop = (kind: TopListName) => useQuery(filteredKey, (signal) => readTop(kind, signal), later);
  const tops = {
    source: useTop('source'),
    url: useTop('url'),
    rule: useTop('rule'),
    country: useTop('country'),
  };
  const all = [now, situation, hosts, lines, ...Object.values(tops)];
  const isLoading = all.some((one) => one.isLoading);
  const network = useQuery(
    filteredKey,
    async (signal) => (session.has_geoip ? readTop('network', signal) : null),
    { ...later, wait: isLoading },
  );
  for (const { id, hostname } of hosts.data?.items ?? []) names.current.set(id, hostname);
  const totals = useMemo(() => {
    if (hosts.data === null) return null;
    const { items, ...whole } = hosts.data;
    const listed = hostTotals(items);
    const rest = withoutHost(whole, listed);
    // With a filter, only attacks matter.
    return rest === null || (kept.length > 0 && rest.attacks === 0) ? listed : [...listed, rest];
  }, [hosts.data]);
  // Next to the numbers of this range, none of the range before.
  const fresh = <T,>({ isLoading, failure }: Query<unknown>, data: T | null) => ({
    failure,
    data: isLoading && !now.isLoading ? null : data,
    isLoading: isLoading && !(now.isLoading && data !== null),
  });
  return {
    now,
    situation,
    isLive,
    hosts: fresh(hosts, totals),
    lines: fresh(lines, lines.data),
    peak: fresh(hosts, hosts.data?.peak ?? null),
    tops: Object.entries({ ...tops, network }).map(([kind, top]) => ({
      kind: kind as TopListName,
      ...fresh(top, top.data),
    })),
    annotations: hosts.data?.annotations ?? [],
    names: names.current,
    range: now.data?.range ?? resolveRange(selectedRange, zone, clock()),
    comparison: now.data === null ? ('none' as const) : comparisonOf(now.data),
    isEmpty: now.data !== null && !now.isLoading && now.data.firstSeen === null,
    rangeKey,
    isLoading,
  };
}

function comparisonOf({ before, firstSeen }: Dashboard): Comparison {
  const [from = 0, to = 0] = [before?.edges[0], before?.edges.at(-1)];
  if (before === null || firstSeen === null || firstSeen >= to) return 'none';
  const isKept = before.kept === undefined || before.kept.kept === before.kept.attacks;
  return firstSeen > from || !isKept ? 'incomplete' : 'complete';
}
