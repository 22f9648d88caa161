/** Requests and attacks at a glance: how many, when, of which category, on which hosts, from where. */
import { useRef } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { CATEGORY_NAMES } from '../categories.ts';
import { CategoriesPanel } from '../dashboard/categories-panel.tsx';
import {
  type DashboardData,
  dashboardKey,
  PreviousPeriods,
  readDashboard,
  readFirstSeen,
} from '../dashboard/data.ts';
import { HostsPanel } from '../dashboard/hosts-panel.tsx';
import { type Comparison, KeyFigures, KeyFiguresSkeleton } from '../dashboard/key-figures.tsx';
import { TimelinePanel } from '../dashboard/timeline-panel.tsx';
import { attacksFilter, readTopLists, TopListPanels } from '../dashboard/top-lists.tsx';
import { type Chip, Chips } from '../parts/chips.tsx';
import { Controls, UpdateState } from '../parts/controls.tsx';
import { HostPicker, useHostNames } from '../parts/host-picker.tsx';
import { Failure, Message, Skeleton } from '../parts/states.tsx';
import { endsNow, resolveRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { filtersCategories } from '../view.ts';
import { FirstRun } from './first-run.tsx';

export function DashboardPage() {
  const project = useProject();
  const mayRead = project.roles.some((role) => role === 'reader' || role === 'admin');
  return mayRead ? <Dashboard /> : <IngestOnly />;
}

/** A user who may send log lines, but not read statistics. */
function IngestOnly() {
  const { name } = useProject();
  return (
    <div class="page">
      <Message title={`You cannot view the statistics of ${name}`}>
        Your role in this project is ingest: it allows sending log lines. To view statistics, ask your
        administrator for the role reader.
      </Message>
    </div>
  );
}

function Dashboard() {
  const { api, view, zone, now } = useApp();
  const project = useProject();
  const previous = useRef(new PreviousPeriods());
  const key = dashboardKey(project.id, view, zone);
  const options = { refresh: view.live && endsNow(view.selectedRange) };
  const main = useQuery(
    key,
    (signal) => readDashboard({ api, project: project.id, view, zone, now: now(), signal }, previous.current),
    options,
  );
  const firstSeen = useQuery(
    `first seen ${project.id}`,
    (signal) => readFirstSeen(api, project.id, signal),
    options,
  );
  // Shown last: a flood makes them slower than all others.
  const tops = useQuery(
    key,
    (signal) => {
      const range = resolveRange(view.selectedRange, zone, now());
      const hosts = view.hosts.length === 0 ? {} : { hosts: view.hosts };
      return readTopLists(api.client(project.id), { ...range, ...hosts, ...attacksFilter(view), signal });
    },
    options,
  );
  const names = useHostNames(view.hosts);
  const { data, failure } = main;
  if (!firstSeen.isLoading && firstSeen.failure === null && firstSeen.data === null)
    return (
      <div class="page dashboard">
        <FirstRun />
      </div>
    );
  const isLoading = main.isLoading || tops.isLoading || firstSeen.isLoading;
  return (
    <div class={`page dashboard ${view.tv ? 'tv' : ''}`}>
      <h1 class="offscreen">Dashboard</h1>
      <Controls>
        <HostPicker names={names} />
        <UpdateState query={main} />
      </Controls>
      <Filters names={names} />
      <div class={`content ${main.isLoading ? 'stale' : ''}`} aria-busy={isLoading}>
        {failure !== null && data === null && <Failure failure={failure} retry={main.reload} />}
        {data === null && failure === null && (
          <>
            <KeyFiguresSkeleton />
            <Skeleton />
          </>
        )}
        {data !== null && (
          <>
            <KeyFigures data={data} comparison={comparisonOf(data, firstSeen.data)} />
            {data.requests === 0 && data.now.timeline.attacks.every(({ num }) => num === 0) ? (
              <Message title="No data in this range">Try a longer range or other hosts.</Message>
            ) : (
              <div class="panels">
                <TimelinePanel data={data} hasPrevious={comparisonOf(data, firstSeen.data) !== 'none'} />
                <CategoriesPanel counts={data.types} range={data.now.range} />
                <div class="tops">
                  <HostsPanel hosts={data.hosts} range={data.now.range} />
                  <TopListPanels lists={tops.data} range={data.now.range} />
                </div>
              </div>
            )}
          </>
        )}
      </div>
    </div>
  );
}

function comparisonOf({ before }: DashboardData, firstSeen: number | null): Comparison {
  if (firstSeen === null || firstSeen >= before.range.to) return 'none';
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
