/** The log sources: whether they report, how fast, and what was dropped. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { SourceHealth, SourceList } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { total } from '../counts.ts';
import { ago, date, formatCount, formatTime } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { Drops, droppedOf, hasUnexpectedDrops, recordsOf } from '../parts/drops.tsx';
import { PageHead, PageLink } from '../parts/frame.tsx';
import { QueryState } from '../parts/states.tsx';
import { byNumber, byText, type Column, numberColumn, RowName, StateLabel, Table } from '../parts/table.tsx';
import { useQuery } from '../use-query.ts';
import { FirstRun } from './first-run.tsx';

/** Most sites have at least one request per hour. */
const SILENT_MS = 3_600_000;

export function SourcesPage() {
  const { api, view } = useApp();
  const project = useProject();
  const query = useQuery(`sources ${project.id}`, (signal) => api.sources(project.id, signal), {
    refresh: view.live,
  });
  const { data } = query;
  // Stays on while the first lines arrive, until the user has seen what became of them.
  const [isAdding, setAdding] = useState<boolean | null>(null);
  useEffect(() => {
    if (data !== null) setAdding((old) => old ?? data.items.length === 0);
  }, [data]);
  const rates = useRates(data);
  const hasSources = data !== null && data.items.length > 0;
  return (
    <div class="page">
      <PageHead level={1} title="Sources">
        {hasSources && (
          <Button kind="primary" onClick={() => setAdding(!isAdding)} icon={isAdding ? 'table' : 'plus'}>
            {isAdding ? 'Show sources' : 'Add a source'}
          </Button>
        )}
      </PageHead>
      <div class="content">
        <QueryState query={query} />
        {data !== null && isAdding === true && (
          <FirstRun {...(hasSources ? { title: 'Add a source' } : {})} />
        )}
        {hasSources && isAdding === false && <Sources items={data.items} rates={rates} />}
      </div>
    </div>
  );
}

/** Records per second by source ID, between the last two loads. */
function useRates(data: SourceList | null): ReadonlyMap<string, number> {
  const last = useRef<{ list: SourceList; rates: ReadonlyMap<string, number> } | null>(null);
  if (data !== null && data !== last.current?.list) {
    const before = last.current?.list;
    const seconds = (data.now - (before?.now ?? data.now)) / 1_000;
    const rates = new Map<string, number>();
    for (const source of data.items) {
      const old = before?.items.find(({ id }) => id === source.id);
      if (seconds > 0) rates.set(source.id, (recordsOf(source) - (old ? recordsOf(old) : 0)) / seconds);
    }
    last.current = { list: data, rates };
  }
  return last.current?.rates ?? new Map();
}

function Sources({ items, rates }: { items: readonly SourceHealth[]; rates: ReadonlyMap<string, number> }) {
  const { zone, now } = useApp();
  const columns: Column<SourceHealth>[] = [
    {
      title: 'Source',
      cell: ({ name, format }) => (
        <div class="stacked">
          <RowName name={name} />
          <code class="hint cut">{format}</code>
        </div>
      ),
      compare: byText(({ name }) => name),
    },
    { title: 'State', cell: (source) => <SourceState source={source} now={now()} /> },
    {
      title: 'Last event',
      largestFirst: true,
      cell: ({ first_seen, last_seen }) =>
        first_seen === null || last_seen === null ? (
          'never'
        ) : (
          <div class="stacked">
            <span title={formatTime(last_seen, zone)}>{ago(last_seen, now())}</span>
            <span
              class="hint"
              title={formatTime(first_seen, zone)}
            >{`first ${date(first_seen, zone, now())}`}</span>
          </div>
        ),
      compare: byNumber(({ last_seen }) => last_seen ?? 0),
    },
    {
      ...numberColumn('Records/s', ({ id }) => rates.get(id) ?? 0),
      cell: ({ id }) => rateText(rates.get(id)),
    },
    numberColumn('Counted', ({ events }) => events),
    {
      ...numberColumn('Without host', ({ without_host }) => without_host),
      cell: ({ without_host }) => warning(without_host, true),
    },
    {
      ...numberColumn('Dropped', droppedOf),
      cell: (source) => warning(droppedOf(source), hasUnexpectedDrops(source)),
    },
    numberColumn('Hosts', ({ hosts }) => hosts.length),
  ];
  return (
    <>
      <Table
        name="Sources"
        columns={columns}
        rows={items}
        keyOf={({ id }) => id}
        initialSort={{ by: 'Source', descending: false }}
      />
      <HostHint items={items} />
      {total(items.map(droppedOf)) === 0 ? (
        <p class="hint">All records were counted; none were dropped.</p>
      ) : (
        <section aria-label="Dropped records">
          <PageHead level={2} title="Dropped records" />
          <Drops sources={items} />
        </section>
      )}
    </>
  );
}

function warning(count: number, isWarning: boolean) {
  return <span class={count > 0 && isWarning ? 'attack' : 'faint'}>{formatCount(count)}</span>;
}

function rateText(rate: number | undefined): string {
  if (rate === undefined) return '–';
  return rate > 0 && rate < 10 ? rate.toFixed(1) : formatCount(Math.round(rate));
}

function SourceState({ source, now }: { source: SourceHealth; now: number }) {
  const { last_seen } = source;
  if (last_seen === null) return <StateLabel kind="silent" text="All dropped" />;
  const isSilent = now - last_seen > SILENT_MS;
  return <StateLabel kind={isSilent ? 'silent' : 'active'} text={isSilent ? 'Silent' : 'Reporting'} />;
}

/** How to fix records without a host. */
function HostHint({ items }: { items: readonly SourceHealth[] }) {
  const records = total(items.map(({ without_host }) => without_host));
  if (records === 0) return null;
  const counted = total(items.map(({ events }) => events));
  return (
    <p class="hint">
      {`${formatCount(records)} of ${formatCount(counted)} records have no registered host, so they count in the project's total only. `}
      Add the host to the log format (nginx: <code>log_format</code> with <code>$host</code>, Apache:{' '}
      <code>%v</code>
      ), or pass <code>--host NAME</code>. If the log has it, add the host on the{' '}
      <PageLink to={{ page: 'hosts' }}>Hosts page</PageLink>, or raise <code>--hosts-max</code>.
    </p>
  );
}
