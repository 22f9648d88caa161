/** The log sources: whether they report, and what was dropped. */
import type { Source } from '@wafstat/client';
import { useApp, useProject } from '../app.ts';
import { ago, formatCount, formatTime, share } from '../format.ts';
import { PageHead } from '../parts/frame.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { byNumber, byText, type Column, StateLabel, Table } from '../parts/table.tsx';
import { total } from '../points.ts';
import { useQuery } from '../use-query.ts';
import { FirstRun } from './first-run.tsx';

/** Most sites have at least one request per hour. */
const SILENT_MS = 3_600_000;

export function SourcesPage() {
  const { api, view } = useApp();
  const project = useProject();
  const { data, failure, reload } = useQuery(
    `sources ${project.id}`,
    (signal) => api.client(project.id).sources({ signal }),
    { refresh: view.live },
  );
  return (
    <div class="page">
      <PageHead level={1} title="Sources" />
      <div class="content">
        {failure !== null && <Failure failure={failure} retry={reload} />}
        {data === null && failure === null && <Skeleton />}
        {data !== null && (data.items.length > 0 ? <Sources items={data.items} /> : <FirstRun />)}
      </div>
    </div>
  );
}

const droppedOf = ({ dropped }: Source) => total(Object.values(dropped));

function Sources({ items }: { items: readonly Source[] }) {
  const { zone, now } = useApp();
  const columns: Column<Source>[] = [
    {
      title: 'Source',
      cell: ({ name }) => <strong class="cut">{name}</strong>,
      compare: byText(({ name }) => name),
    },
    { title: 'State', cell: ({ last_seen }) => <SourceState lastSeen={last_seen} now={now()} /> },
    {
      title: 'Latest event',
      cell: ({ last_seen }) =>
        last_seen === null ? (
          'never'
        ) : (
          <span title={formatTime(last_seen, zone)}>{ago(last_seen, now())}</span>
        ),
      compare: byNumber(({ last_seen }) => last_seen ?? 0),
    },
    {
      title: 'Earliest event',
      cell: ({ first_seen }) => (first_seen === null ? 'never' : formatTime(first_seen, zone)),
      compare: byNumber(({ first_seen }) => first_seen ?? 0),
    },
    { title: 'Format', cell: ({ format }) => <code>{format}</code> },
    { ...numberColumn('Hosts', ({ hosts }) => hosts.length) },
    { ...numberColumn('Counted', ({ events }) => events) },
    {
      ...numberColumn('Without host', ({ without_host }) => without_host),
      cell: (source) => warning(source.without_host),
    },
    { ...numberColumn('Dropped', droppedOf), cell: (source) => warning(droppedOf(source)) },
  ];
  return (
    <>
      <Table name="Sources" columns={columns} rows={items} keyOf={({ id }) => id} />
      <HostHint items={items} />
      <DropReasons items={items} />
    </>
  );
}

function numberColumn(title: string, numberOf: (source: Source) => number): Column<Source> {
  return {
    title,
    isNumber: true,
    largestFirst: true,
    cell: (source) => formatCount(numberOf(source)),
    compare: byNumber(numberOf),
  };
}

function warning(count: number) {
  return <span class={count > 0 ? 'attack' : 'faint'}>{formatCount(count)}</span>;
}

function SourceState({ lastSeen, now }: { lastSeen: number | null; now: number }) {
  const silent = lastSeen === null || now - lastSeen > SILENT_MS;
  return <StateLabel kind={silent ? 'silent' : 'active'} text={silent ? 'Silent' : 'Reporting'} />;
}

interface Drop {
  source: string;
  reason: string;
  records: number;
  /** All records of the source. */
  read: number;
}

function DropReasons({ items }: { items: readonly Source[] }) {
  const { session } = useApp();
  const drops = items.flatMap((source): Drop[] =>
    Object.entries(source.dropped)
      .toSorted(([, a], [, b]) => b - a)
      .map(([reason, records]) => ({
        source: source.name,
        reason,
        records,
        read: source.events + droppedOf(source),
      })),
  );
  if (drops.length === 0) return <p class="hint">All records were counted; none were dropped.</p>;
  const columns: Column<Drop>[] = [
    { title: 'Source', cell: ({ source }) => source },
    {
      title: 'Reason',
      cell: ({ reason }) => (
        <span>
          {`${session.drop_reasons[reason] ?? reason} `}
          <code class="faint">{reason}</code>
        </span>
      ),
    },
    { title: 'Records', isNumber: true, cell: ({ records }) => formatCount(records) },
    { title: 'Share', isNumber: true, cell: ({ records, read }) => share(records, read) },
  ];
  return (
    <section>
      <PageHead level={2} title="Dropped records" />
      <Table
        name="Dropped records by reason"
        columns={columns}
        rows={drops}
        keyOf={({ source, reason }) => `${source} ${reason}`}
      />
    </section>
  );
}

/** How to fix records without a host. */
function HostHint({ items }: { items: readonly Source[] }) {
  const records = total(items.map(({ without_host }) => without_host));
  if (records === 0) return null;
  const counted = total(items.map(({ events }) => events));
  return (
    <p class="hint">
      {`${formatCount(records)} of ${formatCount(counted)} records have no registered host, so they count in the project's total only. `}
      Add the host to the log format (nginx: <code>log_format</code> with <code>$host</code>, Apache:{' '}
      <code>%v</code>
      ), or pass <code>--host NAME</code>. If the log has it, add the host on the Hosts page, or raise{' '}
      <code>--hosts-max</code>.
    </p>
  );
}
