/** Requests and attacks at a glance: how many, when, of which category, on which hosts, from where. */
import { useMemo, useRef } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { totalsOf } from '../counts.ts';
import { CategoriesPanel } from '../dashboard/categories-panel.tsx';
import {
  type Dashboard,
  type DashboardQuery,
  readDashboard,
  readHostLines,
  readHosts,
  readPeak,
  statisticsQuery,
} from '../dashboard/data.ts';
import { Filters } from '../dashboard/filters.tsx';
import { HostsPanel } from '../dashboard/hosts-panel.tsx';
import { type Comparison, KeyFigures } from '../dashboard/key-figures.tsx';
import { TimelinePanel } from '../dashboard/timeline-panel.tsx';
import { attacksFilter, readTopList, type TopListName, TopListPanel } from '../dashboard/top-lists.tsx';
import { hostTotals, withoutHost } from '../host-totals.ts';
import { Controls } from '../parts/controls.tsx';
import { HostPicker } from '../parts/host-picker.tsx';
import { Panel } from '../parts/panel.tsx';
import { Message, Skeleton } from '../parts/states.tsx';
import { TvButton, TvHead } from '../parts/tv.tsx';
import { endsNow, resolveRange } from '../time-range.ts';
import { type Query, useQuery } from '../use-query.ts';
import { countedCategories } from '../view.ts';
import { FirstRun } from './first-run.tsx';

/** Lists, hosts and the peak are many bytes, and change little. */
const LISTS_REFRESH_MS = 60_000;

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
      <Filters names={names} />
      <div class={`content ${now.isLoading ? 'stale' : ''}`} aria-busy={data.isLoading}>
        <KeyFigures dashboard={now} comparison={data.comparison} peak={data.peak} hosts={data.hosts} />
        <Panels {...data} />
      </div>
    </div>
  );
}

function Panels({ now, comparison, hosts, lines, tops, range }: ReturnType<typeof useDashboard>) {
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
          failure={failure ?? lines.failure}
        />
      )}
      {data !== null && <CategoriesPanel counts={totalsOf(data.counts.attacks)} range={range} />}
      <div class="tops">
        <HostsPanel hosts={hosts.data} failure={hosts.failure} range={range} />
        {tops.map((top) => (
          <TopListPanel key={top.name} {...top} range={range} />
        ))}
      </div>
    </div>
  );
}

function isQuiet({ counts }: Dashboard): boolean {
  return [counts.requests, ...Object.values(counts.attacks)].flat().every((n) => n === 0);
}

/** Separate queries, so that the chart is drawn first: hosts and top lists can take longer. */
function useDashboard() {
  const { api, view, zone, now: clock } = useApp();
  const project = useProject();
  const { selectedRange, hosts: selectedHosts } = view;
  const names = useRef(new Map<string, string>());
  const isLive = view.live && endsNow(selectedRange);
  const counted = countedCategories(view);
  const key = JSON.stringify([project.id, selectedRange, zone.id, selectedHosts]);
  const query = (signal: AbortSignal): DashboardQuery => ({
    api,
    project: project.id,
    selected: selectedRange,
    hosts: selectedHosts,
    zone,
    now: clock(),
    signal,
  });
  const now = useQuery<Dashboard>(key, (signal, latest) => readDashboard(query(signal), latest), {
    refresh: isLive,
  });
  const later = { refresh: isLive, refreshMs: LISTS_REFRESH_MS, wait: now.isLoading };
  const hosts = useQuery(key, (signal) => readHosts(query(signal)), later);
  const lines = useQuery(
    `${key} ${view.byHost}`,
    async (signal) => (view.byHost && hosts.data ? readHostLines(query(signal), hosts.data.items) : null),
    { ...later, wait: later.wait || (view.byHost && hosts.isLoading) },
  );
  const useTop = (name: TopListName) =>
    useQuery(
      `${key} ${counted}`,
      (signal) =>
        readTopList(api.client(project.id), name, {
          ...statisticsQuery(query(signal)),
          ...attacksFilter(view),
        }),
      later,
    );
  const tops = {
    sources: useTop('sources'),
    urls: useTop('urls'),
    rules: useTop('rules'),
    countries: useTop('countries'),
  };
  const peak = useQuery(key, (signal) => readPeak(query(signal)), later);
  const all = [now, hosts, lines, peak, ...Object.values(tops)];
  for (const { id, hostname } of hosts.data?.items ?? []) names.current.set(id, hostname);
  const totals = useMemo(() => {
    if (hosts.data === null) return null;
    const { items, ...whole } = hosts.data;
    const listed = hostTotals(items, counted);
    const rest = withoutHost(whole, listed, counted);
    return rest === null ? listed : [...listed, rest];
  }, [hosts.data, counted.join()]);
  // Next to the numbers of this range, none of the range before.
  const fresh = <T,>({ isLoading, failure }: Query<unknown>, data: T | null) => ({
    failure,
    data: isLoading && !now.isLoading ? null : data,
  });
  return {
    now,
    hosts: fresh(hosts, totals),
    lines: fresh(lines, lines.data),
    peak: fresh(peak, peak.data),
    tops: Object.entries(tops).map(([name, top]) => ({ name: name as TopListName, ...fresh(top, top.data) })),
    names: names.current,
    range: now.data?.range ?? resolveRange(selectedRange, zone, clock()),
    comparison: now.data === null ? ('none' as const) : comparisonOf(now.data),
    isEmpty: now.data !== null && !now.isLoading && now.data.firstSeen === null,
    isLoading: all.some((one) => one.isLoading),
  };
}

function comparisonOf({ before, firstSeen }: Dashboard): Comparison {
  const [from = 0, to = 0] = [before?.edges[0], before?.edges.at(-1)];
  if (before === null || firstSeen === null || firstSeen >= to) return 'none';
  return firstSeen > from ? 'incomplete' : 'complete';
}
