/** The key figures, with their change from the previous period. */
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import { total } from '../counts.ts';
import { type Change, change, compactCount, formatCount, formatRange, rateChange, share } from '../format.ts';
import { type HostTotals, NO_HOST } from '../host-totals.ts';
import { sentence } from '../parts/states.tsx';
import { endsToday, previousRangeName, type TimeRange } from '../time-range.ts';
import type { Query } from '../use-query.ts';
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
  peak: Loaded<{ qps: number | null }>;
  hosts: Loaded<readonly HostTotals[]>;
}

/** Without data, it is still loading, or it failed. */
type Loaded<T> = Pick<Query<T>, 'data' | 'failure'>;

export function KeyFigures({ dashboard: { data, failure }, comparison, peak, hosts }: KeyFiguresProps) {
  return (
    <dl class={`figures ${failure === null ? '' : 'stale'}`}>
      {data === null ? (
        (['requests', 'attacks', 'rate', 'blocked'] as const).map((kind) => (
          <MissingFigure key={kind} kind={kind} failure={failure} />
        ))
      ) : (
        <MainFigures dashboard={data} comparison={comparison} />
      )}
      {peak.data === null ? (
        <MissingFigure kind="peak" failure={peak.failure} />
      ) : (
        <Peak requests={peak.data.qps} />
      )}
      {hosts.data === null ? (
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

function MainFigures({ dashboard, comparison }: { dashboard: Dashboard; comparison: Comparison }) {
  const { view } = useApp();
  const { before } = dashboard;
  const { requests, attacks, blocked } = totalsIn(dashboard, view);
  const past = before && totalsIn(before, view);
  const rateBefore = past === null || past.requests === 0 ? null : past.attacks / past.requests;
  const [from = 0, to = 0] = [before?.edges[0], before?.edges.at(-1)];
  const compared = (difference: Change | null) => (
    <Difference difference={difference} comparison={comparison} range={{ from, to }} />
  );
  return (
    <>
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
  const detected = attacks - blocked;
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
          <span>{`${compactCount(detected)} only detected`}</span>
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
  children?: ComponentChildren;
}

function Figure({ kind, text, title, children }: FigureProps) {
  return (
    <div class={`figure ${kind}`}>
      <dt>{NAMES[kind]}</dt>
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
