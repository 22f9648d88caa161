/** Requests and attacks at a glance: how many, when, of which category, on which hosts, from where. */
import { useRef } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { CATEGORY_NAMES, totalsOf } from '../categories.ts';
import { CategoriesPanel } from '../dashboard/categories-panel.tsx';
import {
  type DashboardQuery,
  type Period,
  PreviousPeriods,
  readDetails,
  readFirstSeen,
  readHostTimelines,
  readNow,
  statisticsQuery,
} from '../dashboard/data.ts';
import { HostsPanel } from '../dashboard/hosts-panel.tsx';
import { type Comparison, KeyFigures, KeyFiguresSkeleton } from '../dashboard/key-figures.tsx';
import { TimelinePanel } from '../dashboard/timeline-panel.tsx';
import { attacksFilter, readTopLists, TopListPanels } from '../dashboard/top-lists.tsx';
import { type Chip, Chips } from '../parts/chips.tsx';
import { Controls } from '../parts/controls.tsx';
import { HostPicker, useHostNames } from '../parts/host-picker.tsx';
import { Failure, Message, Skeleton } from '../parts/states.tsx';
import { TvButton, TvHead } from '../parts/tv.tsx';
import { endsNow } from '../time-range.ts';
import { type Query, useQuery } from '../use-query.ts';
import { countedCategories, filtersCategories } from '../view.ts';
import { FirstRun } from './first-run.tsx';

export function DashboardPage() {
  const { view } = useApp();
  const data = useDashboard();
  const names = useHostNames(view.hosts);
  const { now, before, details, tops, isEmpty, isLoading, failure } = data;
  if (isEmpty)
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
      <div class={`content ${now.isLoading ? 'stale' : ''}`} aria-busy={isLoading}>
        {failure !== null && <Failure failure={failure} retry={data.reload} />}
        {now.data === null && failure === null && (
          <>
            <KeyFiguresSkeleton />
            <Skeleton />
          </>
        )}
        {now.data !== null && (
          <>
            <KeyFigures now={now.data} before={before} details={details} comparison={data.comparison} />
            <Panels {...data} period={now.data} tops={tops} />
          </>
        )}
      </div>
    </div>
  );
}

type PanelsProps = ReturnType<typeof useDashboard> & { period: Period };

function Panels({ period, before, details, hostLines, tops, comparison }: PanelsProps) {
  const { hosts } = useApp().view;
  const { range, timeline, categories } = period;
  if ([...timeline.requests, ...timeline.attacks].every(({ num }) => num === 0))
    return (
      <Message title="No data in this range">
        {hosts.length === 0 ? 'Try a longer range.' : 'Try a longer range or other hosts.'}
      </Message>
    );
  return (
    <div class="panels">
      <TimelinePanel
        now={period}
        before={comparison === 'complete' ? before.data : null}
        hosts={hostLines.data}
      />
      <CategoriesPanel counts={totalsOf(categories)} range={range} />
      <div class="tops">
        <HostsPanel details={details.data} failure={details.failure} range={range} />
        <TopListPanels lists={tops.data} failure={tops.failure} range={range} />
      </div>
    </div>
  );
}

/** Separate queries, so that the chart is drawn first: hosts and top lists can take longer. */
function useDashboard() {
  const { api, view, zone, now: clock } = useApp();
  const project = useProject();
  const { selectedRange, hosts } = view;
  const previous = useRef(new PreviousPeriods());
  const hasEvents = useRef(false);
  const options = { refresh: view.live && endsNow(selectedRange) };
  const key = JSON.stringify([project.id, selectedRange, zone.id, hosts]);
  const query = (signal: AbortSignal): DashboardQuery => ({
    api,
    project: project.id,
    selected: selectedRange,
    hosts,
    zone,
    now: clock(),
    signal,
  });
  const now = useQuery(key, (signal) => readNow(query(signal)), options);
  const later = { ...options, wait: now.isLoading };
  const before = useQuery(key, (signal) => previous.current.read(query(signal)), later);
  const details = useQuery(key, (signal) => readDetails(query(signal)), later);
  const hostLines = useQuery(
    `${key} ${view.byHost}`,
    async (signal) => (view.byHost ? readHostTimelines(query(signal)) : null),
    later,
  );
  const tops = useQuery(
    `${key} ${countedCategories(view)}`,
    (signal) =>
      readTopLists(api.client(project.id), { ...statisticsQuery(query(signal)), ...attacksFilter(view) }),
    later,
  );
  const firstSeen = useQuery(`first seen ${project.id}`, (signal) => readFirstSeen(api, project.id, signal), {
    refresh: view.live && !hasEvents.current,
  });
  hasEvents.current = firstSeen.data !== null;
  const all = [now, before, details, hostLines, tops, firstSeen];
  // Next to the numbers of this range, none of the range before.
  const fresh = <T,>(one: Query<T>): Query<T> =>
    one.isLoading && !now.isLoading ? { ...one, data: null } : one;
  // Until the earliest event is known, both periods are compared.
  const isKnown = before.data !== null && firstSeen.data !== null;
  return {
    now,
    before: fresh(before),
    details: fresh(details),
    hostLines: fresh(hostLines),
    tops: fresh(tops),
    comparison: isKnown ? comparisonOf(before.data, firstSeen.data) : ('complete' as const),
    // Once loaded, it stays so while the service does not respond.
    isEmpty: !firstSeen.isLoading && firstSeen.updatedAt !== null && firstSeen.data === null,
    isLoading: all.some((one) => one.isLoading),
    /** Without the main numbers, the page shows only this. Otherwise live mode tries again. */
    failure:
      [now, before, details, hostLines].find((one) => one.data === null && one.failure !== null)?.failure ??
      null,
    reload() {
      for (const one of all) one.reload();
    },
  };
}

function comparisonOf(before: Period | null, firstSeen: number | null): Comparison {
  if (before === null || firstSeen === null || firstSeen >= before.range.to) return 'none';
  return firstSeen > before.range.from ? 'incomplete' : 'complete';
}

/** The active filters. */
function Filters({ names }: { names: ReadonlyMap<string, string> }) {
  const { view, go } = useApp();
  const { hosts, categories, excluded } = view;
  const without = <T,>(list: readonly T[], one: T) => list.filter((other) => other !== one);
  const chips: Chip[] = [
    ...hosts.map((id) => ({
      kind: 'Host',
      text: names.get(id) ?? id,
      remove: () => go({ hosts: without(hosts, id) }),
    })),
    ...categories.map((name) => ({
      kind: 'Category',
      text: CATEGORY_NAMES[name],
      remove: () => go({ categories: without(categories, name) }),
    })),
    ...excluded.map((name) => ({
      kind: 'Not',
      text: CATEGORY_NAMES[name],
      remove: () => go({ excluded: without(excluded, name) }),
    })),
  ];
  const clear = () => go({ hosts: [], categories: [], excluded: [] });
  return filtersCategories(view) || hosts.length > 0 ? <Chips chips={chips} clear={clear} /> : null;
}
