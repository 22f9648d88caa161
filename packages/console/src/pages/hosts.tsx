/** The hosts of the project with their statistics in the selected range. */
import { useState } from 'preact/hooks';
import type { HostFigures } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { formatCount, share } from '../format.ts';
import { byShare, HOST_COMPARE, type HostTotals, hostTotals } from '../host-totals.ts';
import { Controls } from '../parts/controls.tsx';
import { FormDialog } from '../parts/dialog.tsx';
import { Field } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Icon } from '../parts/icon.tsx';
import { Sparkline } from '../parts/sparkline.tsx';
import { Failure, Message, Skeleton } from '../parts/states.tsx';
import { byNumber, byText, type Column, Table } from '../parts/table.tsx';
import { endsNow, resolveRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { HOST_ORDERS, type HostOrder } from '../view.ts';

const ROWS_MAX = 25;
const LINE_POINTS = 60;

type Naming = { host: HostTotals | null };

export function HostsPage() {
  const { api, view, zone, now, go } = useApp();
  const project = useProject();
  const [naming, setNaming] = useState<Naming | null>(null);
  const { selectedRange, order, search, offset } = view;
  const { data, failure, isLoading, reload } = useQuery(
    JSON.stringify([project.id, selectedRange, zone.id, order, search, offset]),
    async (signal) => {
      const range = resolveRange(selectedRange, zone, now());
      const { items } = await api.figures(project.id, { ...range, signal });
      const found = hostTotals(items).filter(({ hostname }) =>
        hostname.includes(search.trim().toLowerCase()),
      );
      const shown = found.toSorted(HOST_COMPARE[order]).slice(offset, offset + ROWS_MAX);
      const query = { ...range, hosts: shown.map(({ id }) => id), points: LINE_POINTS, signal };
      const lines = shown.length === 0 ? [] : (await api.figures(project.id, query)).items;
      return {
        shown,
        lines: new Map(lines.map((host) => [host.id, host])),
        offset,
        found: found.length,
        all: items.length,
      };
    },
    { refresh: view.live && endsNow(selectedRange) && naming === null },
  );
  const mayChange = project.roles.includes('admin');
  return (
    <div class="page">
      <PageHead level={1} title="Hosts">
        {mayChange && (
          <button class="button primary" type="button" onClick={() => setNaming({ host: null })}>
            <Icon name="plus" />
            Add a host
          </button>
        )}
      </PageHead>
      <Controls />
      <div class="controls">
        <div class="with-icon">
          <Icon name="search" />
          <input
            type="search"
            placeholder="Find a host"
            aria-label="Find a host"
            spellcheck={false}
            value={search}
            onInput={(event) => go({ search: event.currentTarget.value, offset: 0 }, 'replace')}
          />
        </div>
      </div>
      <div class="content" aria-busy={isLoading}>
        {failure !== null && <Failure failure={failure} retry={reload} />}
        {data === null && failure === null && <Skeleton />}
        {data !== null && data.shown.length === 0 && <NoHosts all={data.all} />}
        {data !== null && data.shown.length > 0 && (
          <>
            <HostTable
              hosts={data.shown}
              lines={data.lines}
              rename={mayChange ? (host) => setNaming({ host }) : null}
            />
            <Pager offset={data.offset} found={data.found} />
          </>
        )}
      </div>
      {naming !== null && <NameDialog host={naming.host} done={reload} close={() => setNaming(null)} />}
    </div>
  );
}

function NoHosts({ all }: { all: number }) {
  return all === 0 ? (
    <Message title="No hosts yet">
      A host is registered when the first log line names it, or when you add it.
    </Message>
  ) : (
    <Message title="No matching host">{`None of the ${formatCount(all)} hosts matches the search.`}</Message>
  );
}

interface HostTableProps {
  hosts: readonly HostTotals[];
  lines: ReadonlyMap<string, HostFigures>;
  /** Null: the user may not. */
  rename: ((host: HostTotals) => void) | null;
}

const COLUMN_TITLES: Readonly<Record<HostOrder, string>> = {
  requests: 'Requests',
  attacks: 'Attacks',
  share: 'Attack rate',
  name: 'Host',
};

function HostTable({ hosts, lines, rename }: HostTableProps) {
  const { view, go } = useApp();
  const columns: Column<HostTotals>[] = [
    {
      title: 'Host',
      compare: byText(({ hostname }) => hostname),
      cell: ({ id, hostname }) => (
        <button
          class="link cut"
          type="button"
          aria-label={`Dashboard of ${hostname}`}
          onClick={() => go({ page: 'dashboard', hosts: [id] })}
        >
          {hostname}
        </button>
      ),
    },
    {
      title: 'Requests',
      isNumber: true,
      compare: byNumber(({ requests }) => requests),
      cell: ({ requests }) => formatCount(requests),
    },
    {
      title: 'Attacks',
      isNumber: true,
      compare: byNumber(({ attacks }) => attacks),
      cell: ({ attacks }) => <span class={attacks > 0 ? 'attack' : 'faint'}>{formatCount(attacks)}</span>,
    },
    {
      title: 'Attack rate',
      isNumber: true,
      compare: byShare,
      cell: ({ attacks, requests }) => share(attacks, requests),
    },
    { title: 'Trend', cell: ({ id }) => <HostTrend host={lines.get(id)} /> },
    { title: 'ID', cell: ({ id }) => <code class="faint">{id}</code> },
    ...(rename === null ? [] : [renameColumn(rename)]),
  ];
  const sort = (title: string) =>
    go({ order: HOST_ORDERS.find((name) => COLUMN_TITLES[name] === title) ?? 'requests', offset: 0 });
  return (
    <Table
      name="Hosts"
      columns={columns}
      rows={hosts}
      keyOf={({ id }) => id}
      sort={{ by: COLUMN_TITLES[view.order], descending: view.order !== 'name' }}
      onSort={({ by }) => sort(by)}
    />
  );
}

function renameColumn(rename: (host: HostTotals) => void): Column<HostTotals> {
  return {
    title: 'Actions',
    hideTitle: true,
    isNumber: true,
    cell: (host) => (
      <button
        class="button quiet small"
        type="button"
        aria-label={`Rename ${host.hostname}`}
        onClick={() => rename(host)}
      >
        <Icon name="edit" />
        Rename
      </button>
    ),
  };
}

function HostTrend({ host }: { host: HostFigures | undefined }) {
  return host === undefined ? null : <Sparkline requests={host.requests} attacks={host.attacks} />;
}

function Pager({ offset, found }: { offset: number; found: number }) {
  const { go } = useApp();
  if (found <= ROWS_MAX) return null;
  const end = offset + ROWS_MAX;
  const [first, last, all] = [offset + 1, Math.min(found, end), found].map(formatCount);
  return (
    <div class="pager">
      <button
        class="button"
        type="button"
        disabled={offset === 0}
        onClick={() => go({ offset: Math.max(0, offset - ROWS_MAX) })}
      >
        Previous
      </button>
      <span class="hint">{`${first} to ${last} of ${all}`}</span>
      <button class="button" type="button" disabled={end >= found} onClick={() => go({ offset: end })}>
        Next
      </button>
    </div>
  );
}

interface NameDialogProps {
  /** Null: a new host. */
  host: HostTotals | null;
  done(): void;
  close(): void;
}

function NameDialog({ host, done, close }: NameDialogProps) {
  const { api } = useApp();
  const project = useProject();
  const submit = async (hostname: string) => {
    if (host === null) await api.addHost(project.id, hostname);
    else await api.renameHost(project.id, host.id, hostname);
    done();
  };
  const common = {
    label: 'Host name',
    name: 'hostname',
    required: true,
    spellcheck: false,
    autocapitalize: 'none',
  } as const;
  return host === null ? (
    <FormDialog title="Add a host" verb="Add" submit={({ hostname = '' }) => submit(hostname)} close={close}>
      <Field {...common} />
    </FormDialog>
  ) : (
    <FormDialog
      title={`Rename ${host.hostname}`}
      verb="Rename"
      submit={({ hostname = '' }) => submit(hostname)}
      close={close}
    >
      <Field
        {...common}
        defaultValue={host.hostname}
        hint="The host keeps its ID and counts. Log lines with the old name will count for a new host."
      />
    </FormDialog>
  );
}
