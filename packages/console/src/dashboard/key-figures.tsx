/** The key figures, with their change from the previous period. */
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import { total } from '../counts.ts';
import { keptFilters, only } from '../filters.ts';
import { type Change, change, compactCount, formatCount, formatRange, rateChange, share } from '../format.ts';
import { type HostTotals, NO_HOST } from '../host-totals.ts';
import { sentence } from '../parts/states.tsx';
import { endsToday, previousRangeName, type TimeRange } from '../time-range.ts';
import type { Query } from '../use-query.ts';
import { showAttacks } from './attacks-panel.tsx';
import { type Dashboard, totalsIn } from './data.ts';

const NAMES = {
  requests: 'Requests',
  attacks: 'Attacks',
  rate: 'Attack rate',
  blocked: 'Blocked',
  peak: 'Peak',
  busiest: 'Busiest host',
} as const;

/** How the previous period can be compared. */
export type Comparison = 'complete' | 'incomplete' | 'none';

interface KeyFiguresProps {
  dashboard: Loaded<Dashboard>;
  comparison: Comparison;
  /** Requests in the busiest second. */
  peak: Loaded<number>;
  hosts: Loaded<readonly HostTotals[]>;
}

/** Without data, it is still loading, or it failed. */
type Loaded<T> = Pick<Query<T>, 'data' | 'failure'> & { isLoading: boolean };

export function KeyFigures({ dashboard: { data, failure }, comparison, peak, hosts }: KeyFiguresProps) {
  const isFiltered = keptFilters(useApp().view.filters).length > 0;
  return (
    <dl class={`figures ${failure === null ? '' : 'stale'}`}>
      {data === null ? (
        (['requests', 'attacks', 'rate', 'blocked'] as const).map((kind) => (
          <MissingFigure key={kind} kind={kind} failure={failure} />
        ))
      ) : (
        <MainFigures dashboard={data} comparison={comparison} />
      )}
      {isFiltered ? (
        <NotFiltered kind="peak" />
      ) : peak.isLoading || peak.failure !== null ? (
        <MissingFigure kind="peak" failure={peak.failure} />
      ) : (
        <Peak requests={peak.data} />
      )}
      {isFiltered ? (
        <NotFiltered kind="busiest" />
      ) : hosts.data === null ? (
        <MissingFigure kind="busiest" failure={hosts.failure} />
      ) : (
        <Busiest hosts={hosts.data} />
      )}
    </dl>
  );
}

function MissingFigure({ kind, failure }: { kind: keyof typeof NAMES; failure: unknown }) {
  return <Figure kind={kind} {...(failure === null ? {} : { text: '–', title: sentence(failure) })} />;
}

/** Requests are counted, not kept: no other number may look like theirs. */
function NotFiltered({ kind }: { kind: keyof typeof NAMES }) {
  return (
    <Figure kind={kind} text="–" title="Requests cannot be filtered: only attacks are kept">
      not filtered
    </Figure>
  );
}

function MainFigures({ dashboard, comparison }: { dashboard: Dashboard; comparison: Comparison }) {
  const { view, zone } = useApp();
  const { filters, selectedRange } = view;
  const { before } = dashboard;
  const { requests, attacks, blocked } = totalsIn(dashboard, filters);
  const past = before && totalsIn(before, filters);
  const isFiltered = keptFilters(filters).length > 0;
  const isWorse = comparison === 'complete' && past !== null && attacks > past.attacks;
  const rateBefore = past === null || past.requests === 0 ? null : past.attacks / past.requests;
  const [from = 0, to = 0] = [before?.edges[0], before?.edges.at(-1)];
  const compared = (difference: Change | null, isBad = false) => (
    <Difference
      {...{ difference, comparison, isBad }}
      period={previousRangeName(selectedRange, dashboard.range, zone, view.compared)}
      range={{ from, to }}
    />
  );
  return (
    <>
      {isFiltered ? (
        <NotFiltered kind="requests" />
      ) : (
        <Figure kind="requests" text={compactCount(requests)} title={formatCount(requests)}>
          {compared(past && change(requests, past.requests))}
        </Figure>
      )}
      <Figure
        kind="attacks"
        text={compactCount(attacks)}
        title={`${formatCount(attacks)}. Show the attacks`}
        isWorse={isWorse}
        act={showAttacks}
      >
        {compared(past && change(attacks, past.attacks), true)}
      </Figure>
      {isFiltered ? (
        <NotFiltered kind="rate" />
      ) : (
        <Figure
          kind="rate"
          text={share(attacks, requests)}
          title={`${formatCount(attacks)} of ${formatCount(requests)}`}
          isWorse={isWorse}
        >
          {compared(
            requests === 0 || rateBefore === null ? null : rateChange(attacks / requests, rateBefore),
            true,
          )}
        </Figure>
      )}
      <Blocked blocked={blocked} attacks={attacks} />
    </>
  );
}

function Peak({ requests }: { requests: number | null }) {
  if (requests === null)
    return <Figure kind="peak" text="–" title="Too much data: choose fewer hosts or a shorter range" />;
  return (
    <Figure kind="peak" text={formatCount(requests)} title="Requests in the busiest second">
      requests per second
    </Figure>
  );
}

function Blocked({ blocked, attacks }: { blocked: number; attacks: number }) {
  const { view, go } = useApp();
  const detected = attacks - blocked;
  const showDetected = () => {
    go({ filters: only(view.filters, 'action', 'log') });
    showAttacks();
  };
  return (
    <Figure
      kind="blocked"
      text={share(blocked, attacks)}
      title={`${formatCount(blocked)} blocked, ${formatCount(detected)} only detected`}
    >
      {attacks === 0 ? (
        'no attacks'
      ) : (
        <>
          <span class="split" aria-hidden="true">
            <span style={{ width: `${(blocked / attacks) * 100}%` }} />
          </span>
          <button class="link" type="button" title="Show what got through" onClick={showDetected}>
            {`${compactCount(detected)} only detected`}
          </button>
        </>
      )}
    </Figure>
  );
}

/** The host with the most requests; the first by name if there are several. */
function Busiest({ hosts }: { hosts: readonly HostTotals[] }) {
  const [host] = hosts.filter(({ id }) => id !== NO_HOST).toSorted((a, b) => b.requests - a.requests);
  if (host === undefined || host.requests === 0)
    return <Figure kind="busiest" text="–" title="No requests" />;
  const all = total(hosts.map(({ requests }) => requests));
  return (
    <Figure kind="busiest" text={host.hostname} title={host.hostname}>
      {`${compactCount(host.requests)} ${host.requests === 1 ? 'request' : 'requests'}, ${share(host.requests, all)}`}
    </Figure>
  );
}

interface FigureProps {
  kind: keyof typeof NAMES;
  /** Without a text, it is still loading. */
  text?: string;
  /** The tooltip. */
  title?: string;
  /** More attacks than in the period before. */
  isWorse?: boolean;
  /** What a click on the number does. */
  act?(): void;
  children?: ComponentChildren;
}

function Figure({ kind, text, title, isWorse = false, act, children }: FigureProps) {
  return (
    <div class={`figure ${kind} ${isWorse ? 'worse' : ''}`}>
      <dt>{NAMES[kind]}</dt>
      <dd class="value" title={title}>
        {text === undefined && <span class="skeleton" />}
        {act === undefined ? (
          text
        ) : (
          <button class="link" type="button" onClick={act}>
            {text}
          </button>
        )}
      </dd>
      <dd class="change">{text === undefined ? <span class="skeleton" /> : children}</dd>
    </div>
  );
}

const ARROWS = { up: '▲', down: '▼', same: null, new: null } as const;

interface DifferenceProps {
  difference: Change | null;
  comparison: Comparison;
  /** The name of the previous period. */
  period: string;
  range: TimeRange;
  /** More is worse. */
  isBad: boolean;
}

function Difference({ difference, comparison, period, range: { from, to }, isBad }: DifferenceProps) {
  const { view, zone } = useApp();
  if (comparison === 'none') return <>No earlier data</>;
  if (comparison === 'incomplete') return <>Earlier data is incomplete</>;
  if (difference === null) return null;
  const sameTime = endsToday(view.selectedRange) ? ' (up to the same time of day: today is not over)' : '';
  const title = `vs ${period}: ${formatRange(from, to, zone)}${sameTime}`;
  const arrow = ARROWS[difference.direction];
  if (difference.direction === 'new')
    return <span title={title}>{`None ${period.startsWith('previous') ? `in the ${period}` : period}`}</span>;
  return (
    <span class="compared" title={title}>
      <span class={`difference ${isBad ? difference.direction : ''}`}>
        {arrow && (
          <span class="arrow" aria-hidden="true">
            {arrow}
          </span>
        )}
        {difference.text}
      </span>
      <span>{`vs ${period}`}</span>
    </span>
  );
}
