/** The key figures, with their change from the previous period. */
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import { type Change, change, compactCount, formatCount, formatRange, rateChange, share } from '../format.ts';
import type { HostTotals } from '../host-totals.ts';
import { sentence } from '../parts/states.tsx';
import { total } from '../points.ts';
import { endsToday, previousRangeName, type TimeRange } from '../time-range.ts';
import type { Query } from '../use-query.ts';
import { filtersCategories } from '../view.ts';
import { countsOf, type Details, type Period } from './data.ts';

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
  now: Period;
  before: Loaded<Period>;
  details: Loaded<Details>;
  comparison: Comparison;
}

/** Without data, it is still loading, or it failed: the page says why. */
type Loaded<T> = Pick<Query<T>, 'data' | 'failure'>;

export function KeyFigures({ now, before: { data: before, failure }, details, comparison }: KeyFiguresProps) {
  const { view } = useApp();
  const { requests, attacks } = countsOf(now, view);
  const past = before === null ? null : countsOf(before, view);
  const rateBefore = past === null || past.requests === 0 ? null : past.attacks / past.requests;
  const compared = (difference: Change | null) => {
    if (before === null) return failure === null ? <span class="skeleton" /> : '–';
    return <Difference difference={difference} comparison={comparison} range={before.range} />;
  };
  return (
    <dl class="figures">
      <Figure kind="requests" text={compactCount(requests)} title={formatCount(requests)}>
        {compared(past && change(requests, past.requests))}
      </Figure>
      <Figure kind="attacks" text={compactCount(attacks)} title={formatCount(attacks)}>
        {compared(past && change(attacks, past.attacks))}
      </Figure>
      <Figure
        kind="rate"
        text={share(attacks, requests)}
        title={`${formatCount(attacks)} of ${formatCount(requests)}`}
      >
        {compared(requests === 0 || rateBefore === null ? null : rateChange(attacks / requests, rateBefore))}
      </Figure>
      <DetailFigures {...details} />
    </dl>
  );
}

const DETAIL_KINDS = ['blocked', 'peak', 'busiest'] as const;

function DetailFigures({ data, failure }: Loaded<Details>) {
  if (data !== null)
    return (
      <>
        <Blocked details={data} />
        <Peak requests={data.peak} />
        <Busiest details={data} />
      </>
    );
  const state = failure === null ? {} : { text: '–', title: sentence(failure) };
  return DETAIL_KINDS.map((kind) => <Figure key={kind} kind={kind} {...state} />);
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

/** The service knows this for all categories together only. */
function Blocked({ details: { blocked, detected } }: { details: Details }) {
  const { view } = useApp();
  const all = blocked + detected;
  return (
    <Figure
      kind="blocked"
      text={share(blocked, all)}
      title={`${formatCount(blocked)} blocked, ${formatCount(detected)} only detected`}
      scope={filtersCategories(view) ? 'all categories' : undefined}
    >
      {all === 0 ? (
        'no attacks'
      ) : (
        <>
          <span class="split" aria-hidden="true">
            <span style={{ width: `${(blocked / all) * 100}%` }} />
          </span>
          <span>{`${compactCount(detected)} only detected`}</span>
        </>
      )}
    </Figure>
  );
}

function Busiest({ details: { hosts, withoutHost } }: { details: Details }) {
  const all = total(hosts.map(({ requests }) => requests)) + (withoutHost?.requests ?? 0);
  const host = busiestHost(hosts);
  if (host === undefined) return <Figure kind="busiest" text="–" title="No requests" />;
  return (
    <Figure kind="busiest" text={host.hostname} title={host.hostname}>
      {`${compactCount(host.requests)} ${host.requests === 1 ? 'request' : 'requests'}, ${share(host.requests, all)}`}
    </Figure>
  );
}

/** The host with the most requests; the first by name if there are several. */
function busiestHost(hosts: readonly HostTotals[]): HostTotals | undefined {
  const [first] = hosts.toSorted((a, b) => b.requests - a.requests);
  return first !== undefined && first.requests > 0 ? first : undefined;
}

interface FigureProps {
  kind: keyof typeof NAMES;
  /** Without a text, it is still loading. */
  text?: string;
  /** The tooltip. */
  title?: string;
  /** What it counts, if not what the view shows. */
  scope?: string | undefined;
  children?: ComponentChildren;
}

function Figure({ kind, text, title, scope, children }: FigureProps) {
  return (
    <div class={`figure ${kind}`}>
      <dt>{scope === undefined ? NAMES[kind] : `${NAMES[kind]} (${scope})`}</dt>
      <dd class="value" title={title}>
        {text ?? <span class="skeleton" />}
      </dd>
      <dd class="change">{text === undefined ? <span class="skeleton" /> : children}</dd>
    </div>
  );
}

const ARROWS = { up: '▲', down: '▼', same: null, new: null } as const;

interface DifferenceProps {
  difference: Change | null;
  comparison: Comparison;
  /** The previous period. */
  range: TimeRange;
}

function Difference({ difference, comparison, range: { from, to } }: DifferenceProps) {
  const { view, zone } = useApp();
  if (comparison === 'none') return <>No earlier data</>;
  if (comparison === 'incomplete') return <>Earlier data is incomplete</>;
  if (difference === null) return null;
  const period = previousRangeName(view.selectedRange);
  const sameTime = endsToday(view.selectedRange) ? ' (up to the same time of day: today is not over)' : '';
  const title = `vs ${period}: ${formatRange(from, to, zone)}${sameTime}`;
  const arrow = ARROWS[difference.direction];
  if (difference.direction === 'new')
    return <span title={title}>{`None ${period.startsWith('previous') ? `in the ${period}` : period}`}</span>;
  return (
    <span class="compared" title={title}>
      <span class="difference">
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

export function KeyFiguresSkeleton() {
  return (
    <dl class="figures">
      {(Object.keys(NAMES) as (keyof typeof NAMES)[]).map((kind) => (
        <Figure key={kind} kind={kind} />
      ))}
    </dl>
  );
}
