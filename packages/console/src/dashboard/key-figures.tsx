/** The key figures, with their change from the previous period. */
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import { type Change, change, compactCount, formatCount, formatRange, rateChange, share } from '../format.ts';
import type { HostTotals } from '../host-totals.ts';
import { previousRangeName } from '../time-range.ts';
import { filtersCategories } from '../view.ts';
import type { DashboardData } from './data.ts';

const NAMES = {
  requests: 'Requests',
  attacks: 'Attacks',
  share: 'Attack rate',
  blocked: 'Blocked',
  peak: 'Peak',
  busiest: 'Busiest host',
} as const;

/** How the previous period can be compared. */
export type Comparison = 'complete' | 'incomplete' | 'none';

export function KeyFigures({ data, comparison }: { data: DashboardData; comparison: Comparison }) {
  const { requests, attacks, requestsBefore, attacksBefore } = data;
  const rateBefore = requestsBefore === 0 ? null : attacksBefore / requestsBefore;
  const rate = requests === 0 ? null : attacks / requests;
  const compared = (difference: Change | null) => (
    <Difference difference={difference} comparison={comparison} data={data} />
  );
  return (
    <dl class="figures">
      <Figure kind="requests" text={compactCount(requests)} title={formatCount(requests)}>
        {compared(change(requests, requestsBefore))}
      </Figure>
      <Figure kind="attacks" text={compactCount(attacks)} title={formatCount(attacks)}>
        {compared(change(attacks, attacksBefore))}
      </Figure>
      <Figure
        kind="share"
        text={share(attacks, requests)}
        title={`${formatCount(attacks)} of ${formatCount(requests)}`}
      >
        {compared(rate === null || rateBefore === null ? null : rateChange(rate, rateBefore))}
      </Figure>
      <Blocked data={data} />
      <Figure
        kind="peak"
        text={data.peak === null ? '–' : formatCount(data.peak)}
        title={
          data.peak === null
            ? 'Too much data: choose fewer hosts or a shorter range'
            : 'Requests in the busiest second'
        }
      >
        requests per second
      </Figure>
      <Busiest hosts={data.hosts} />
    </dl>
  );
}

/** The service knows this for all categories together only. */
function Blocked({ data: { blocked, detected } }: { data: DashboardData }) {
  const { view } = useApp();
  const all = blocked + detected;
  return (
    <Figure
      kind="blocked"
      text={share(blocked, all)}
      title={`${formatCount(blocked)} of ${formatCount(all)} attacks`}
    >
      <span class="split" aria-hidden="true">
        <span style={{ width: `${all === 0 ? 0 : (blocked / all) * 100}%` }} />
      </span>
      {`${compactCount(blocked)} blocked, ${compactCount(detected)} detected`}
      {filtersCategories(view) && ' (all categories)'}
    </Figure>
  );
}

function Busiest({ hosts }: { hosts: readonly HostTotals[] }) {
  const all = hosts.reduce((sum, { requests }) => sum + requests, 0);
  const host = busiestHost(hosts);
  if (host === undefined) return <Figure kind="busiest" text="–" title="No requests" />;
  return (
    <Figure kind="busiest" text={host.hostname} title={host.hostname}>
      {`${compactCount(host.requests)} requests, ${share(host.requests, all)}`}
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
  text: string;
  /** The tooltip. */
  title: string;
  children?: ComponentChildren;
}

function Figure({ kind, text, title, children }: FigureProps) {
  return (
    <div class={`figure ${kind}`}>
      <dt>{NAMES[kind]}</dt>
      <dd class="value" title={title}>
        {text}
      </dd>
      <dd class="change">{children}</dd>
    </div>
  );
}

const ARROWS = { up: '▲', down: '▼', same: null } as const;

interface DifferenceProps {
  difference: Change | null;
  comparison: Comparison;
  data: DashboardData;
}

function Difference({ difference, comparison, data }: DifferenceProps) {
  const { view, zone } = useApp();
  if (comparison === 'none') return <>no earlier data</>;
  if (comparison === 'incomplete') return <>earlier data is incomplete</>;
  if (difference === null) return null;
  const { from, to } = data.before.range;
  const name = previousRangeName(view.selectedRange);
  const arrow = ARROWS[difference.direction];
  return (
    <span title={`vs ${name}: ${formatRange(from, to, zone)}`}>
      <span class="difference">
        {arrow && (
          <span class="arrow" aria-hidden="true">
            {arrow}
          </span>
        )}
        {difference.text}
      </span>
      <span class="against">{` vs ${name}`}</span>
    </span>
  );
}

export function KeyFiguresSkeleton() {
  return (
    <dl class="figures">
      {Object.entries(NAMES).map(([kind, name]) => (
        <div key={kind} class="figure">
          <dt>{name}</dt>
          <dd class="value">
            <span class="skeleton" />
          </dd>
          <dd class="change">
            <span class="skeleton" />
          </dd>
        </div>
      ))}
    </dl>
  );
}
