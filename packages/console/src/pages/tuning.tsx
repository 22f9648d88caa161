/** Which rules hit users, the narrowest exclusion of each, and whether the firewall can block. */
import { chosenExclusions, exclusionFile, type TuningItem, type TuningReport } from '@wafstat/client';
import { useMemo } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { download, fileName } from '../export.ts';
import { formatCount } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { Controls } from '../parts/controls.tsx';
import { CopyButton } from '../parts/copy.tsx';
import { PageHead } from '../parts/frame.tsx';
import { HostPicker } from '../parts/host-picker.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { Panel } from '../parts/panel.tsx';
import { Message, QueryState } from '../parts/states.tsx';
import { type Column, numberColumn, StateLabel, Table } from '../parts/table.tsx';
import { resolveRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { parseThreshold, THRESHOLD_MAX } from '../view.ts';

const ROWS = 25;

export function TuningPage() {
  const { api, view, zone, now } = useApp();
  const project = useProject();
  const { selectedRange, hosts, threshold } = view;
  const key = JSON.stringify([project.id, selectedRange, zone.id, hosts, threshold]);
  const query = useQuery(key, async (signal) => {
    const range = resolveRange(selectedRange, zone, now());
    const some = hosts.length === 0 ? {} : { hosts };
    const query = { ...range, ...some, timezone: zone.id, threshold, signal };
    const report = await api.client(project.id).tuning(query);
    return { range, report };
  });
  const { data, isLoading } = query;
  const chosen = useMemo(() => (data === null ? [] : chosenExclusions(data.report)), [data]);
  const save = () => {
    if (data === null) return;
    const name = fileName(project.name, 'exclusions', data.range, zone, 'conf');
    download(name, new Blob([exclusionFile(chosen)], { type: 'text/plain;charset=utf-8' }));
  };
  return (
    <div class="page">
      <PageHead level={1} title="Tuning">
        <Button kind="primary" icon="download" disabled={chosen.length === 0} onClick={save}>
          {chosen.length === 0 ? 'No exclusions' : `Download ${exclusionsText(chosen.length)}`}
        </Button>
      </PageHead>
      <Controls query={query}>
        <HostPicker names={NO_NAMES} />
        <Threshold />
      </Controls>
      <div class={`content ${isLoading ? 'stale' : ''}`} aria-busy={isLoading}>
        <QueryState query={query} />
        {data !== null && <Report report={data.report} listKey={key} />}
      </div>
    </div>
  );
}

/** A value that is not valid is not used, and the browser says why. */
function Threshold() {
  const { view, go } = useApp();
  return (
    <label class="threshold" title="The inbound anomaly score from which the firewall blocks">
      Threshold
      <input
        type="number"
        min={1}
        max={THRESHOLD_MAX}
        required
        value={view.threshold}
        onChange={({ currentTarget: input }) => {
          const threshold = parseThreshold(input.value);
          if (input.reportValidity() && threshold !== null) go({ threshold }, 'replace');
        }}
      />
    </label>
  );
}

/** The picker then shows how many hosts are selected. */
const NO_NAMES: ReadonlyMap<string, string> = new Map();

function exclusionsText(count: number): string {
  return `${formatCount(count)} ${count === 1 ? 'exclusion' : 'exclusions'}`;
}

function Report({ report, listKey }: { report: TuningReport; listKey: string }) {
  const { items, total, complete, kept_attacks, attacks, left_out } = report;
  const { limit, more } = useLimit(ROWS, listKey);
  const shown = items.slice(0, limit);
  return (
    <>
      <Blocking report={report} />
      {items.length === 0 ? (
        <Message title="No rules to tune in this range">
          {kept_attacks === 0
            ? 'No attacks are kept. Try a longer range.'
            : 'Try a longer range, or other hosts.'}
        </Message>
      ) : (
        <>
          <Table name="Candidates for exclusions" columns={COLUMNS} rows={shown} keyOf={keyOf} />
          <More shown={shown.length} all={items.length} more={more} />
        </>
      )}
      {total > items.length && (
        <p class="hint">{`${formatCount(total)} rows in total; the first ${formatCount(items.length)} are listed.`}</p>
      )}
      {!complete && (
        <p class="hint">{`Based on the ${formatCount(kept_attacks)} of ${formatCount(attacks)} attacks that are kept.`}</p>
      )}
      {left_out > 0 && (
        <p class="hint">{`${formatCount(left_out)} attacks are in no row: the log has no path or no rule of them, or there are too many.`}</p>
      )}
    </>
  );
}

type Day = TuningReport['blocking']['days'][number];

const DAY_COLUMNS: readonly Column<Day>[] = [
  { title: 'Day', cell: ({ day }) => day, compare: (a, b) => (a.day < b.day ? -1 : 1) },
  numberColumn('Attacks', ({ attacks }) => attacks),
  numberColumn('Would be blocked', ({ would_block }) => would_block),
  {
    ...numberColumn<Day>('Likely false positives', ({ false_positives }) => false_positives),
    cell: ({ false_positives: count }) => (
      <span class={count > 0 ? 'attack' : 'faint'}>{formatCount(count)}</span>
    ),
  },
];

function Blocking({ report: { blocking } }: { report: TuningReport }) {
  return (
    <Panel title="From detection to blocking" class="blocking">
      <p>
        <StateLabel kind={blocking.ready ? 'active' : 'silent'} text={blocking.text} />
      </p>
      {blocking.days.length > 0 && (
        <Table
          name="What the firewall would have blocked"
          columns={DAY_COLUMNS}
          rows={blocking.days.toReversed()}
          keyOf={({ day }) => day}
        />
      )}
    </Panel>
  );
}

const LIKELY = {
  false_positive: { kind: 'silent', text: 'False positive' },
  unclear: { kind: 'off', text: 'Unclear' },
  attack: { kind: 'active', text: 'Attack' },
} as const;

const COLUMNS: readonly Column<TuningItem>[] = [
  { title: 'Likely', cell: ({ likely }) => <StateLabel {...LIKELY[likely]} /> },
  {
    title: 'Rules and variable',
    cell: ({ rules, variable }) => (
      <div class="stacked">
        <strong>{rules.join(' ')}</strong>
        <code class="cut" title={variable}>
          {variable || 'no variable'}
        </code>
      </div>
    ),
  },
  {
    title: 'Host and path',
    cell: ({ host, path }) => (
      <div class="stacked">
        <span class="cut" title={host}>
          {host || 'no host'}
        </span>
        <code class="cut" title={path}>
          {path}
        </code>
      </div>
    ),
  },
  numberColumn('Attacks', ({ attacks }) => attacks),
  { ...numberColumn<TuningItem>('Blocked', ({ blocked }) => blocked), isWide: true },
  numberColumn('Sources', ({ sources }) => sources),
  { ...numberColumn<TuningItem>('Days', ({ days }) => days), isWide: true },
  { ...numberColumn<TuningItem>('Alone', ({ alone }) => alone), isWide: true },
  {
    title: 'Why',
    cell: (item) => (
      <div class="reasons">
        <ul>
          {item.reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
        <details>
          <summary>Exclusion</summary>
          <div class="command">
            <pre tabIndex={0} role="region" aria-label={`Exclusion of ${keyOf(item)}`}>
              {item.exclusion}
            </pre>
            <CopyButton text={item.exclusion} />
          </div>
        </details>
      </div>
    ),
  },
];

function keyOf({ rules, variable, host, path }: TuningItem): string {
  return `${rules.join(' ')} ${variable} ${host}${path}`;
}
