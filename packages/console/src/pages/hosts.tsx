/** The hosts of the project with their statistics in the selected range. */
import { useState } from 'preact/hooks';
import type { HostFigures } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { formatCount, share } from '../format.ts';
import { type HostTotals, hostTotals, NO_HOST, NO_HOST_TITLE, withoutHost } from '../host-totals.ts';
import { Button } from '../parts/button.tsx';
import { Controls } from '../parts/controls.tsx';
import { Confirm, FormDialog } from '../parts/dialog.tsx';
import { Field } from '../parts/form.tsx';
import { PageHead, PageLink } from '../parts/frame.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { SPARKLINE_KEY, Sparkline } from '../parts/sparkline.tsx';
import { Message, QueryState } from '../parts/states.tsx';
import {
  actionsColumn,
  byText,
  type Column,
  numberColumn,
  RowButton,
  sorted,
  Table,
  type Sort as TableSort,
} from '../parts/table.tsx';
import { equalParts } from '../points.ts';
import { endsNow, resolveRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import type { View } from '../view.ts';

const ROWS = 50;
/** The limit of the service for the hosts of a query. */
const LINES_MAX = 1_000;
const LINE_POINTS = 60;
/** A project can have thousands of hosts. */
const HOSTS_REFRESH_MS = 30_000;

/** An open dialog. Without a host, a new one is named. */
type HostDialog = { kind: 'name'; host: HostTotals | null } | { kind: 'delete'; host: HostTotals };

export function HostsPage() {
  const { api, view, zone, now, go } = useApp();
  const project = useProject();
  const [dialog, setDialog] = useState<HostDialog | null>(null);
  const { selectedRange, search } = view;
  const sort = sortOf(view);
  const { limit, more } = useLimit(ROWS, `${project.id} ${sort.by} ${search}`);
  const query = useQuery(
    JSON.stringify([project.id, selectedRange, zone.id, sort, search, limit]),
    async (signal) => {
      const range = resolveRange(selectedRange, zone, now());
      const common = { byHost: true, signal };
      const { items, ...whole } = await api.figures(project.id, { ...common, edges: equalParts(range, 1) });
      const all = hostTotals(items);
      const found = all.filter(({ hostname }) => hostname.includes(search.trim().toLowerCase()));
      const shown = sorted(found, COLUMNS, sort).slice(0, limit);
      const hosts = shown.slice(0, LINES_MAX).map(({ id }) => id);
      const some = { ...common, hosts, edges: equalParts(range, LINE_POINTS) };
      const lines = shown.length === 0 ? [] : (await api.figures(project.id, some)).items;
      return {
        shown,
        lines: new Map(lines.map((host) => [host.id, host])),
        found: found.length,
        all: items.length,
        withoutHost: withoutHost(whole, all),
      };
    },
    { refresh: view.live && endsNow(selectedRange) && dialog === null, refreshMs: HOSTS_REFRESH_MS },
  );
  const { data, isLoading, reload } = query;
  const mayChange = project.roles.includes('admin');
  return (
    <div class="page">
      <PageHead level={1} title="Hosts">
        {mayChange && (
          <Button kind="primary" onClick={() => setDialog({ kind: 'name', host: null })} icon="plus">
            Add a host
          </Button>
        )}
      </PageHead>
      <Controls query={query}>
        <SearchBox name="Find a host" value={search} search={(text) => go({ search: text }, 'replace')} />
      </Controls>
      <div class="content" aria-busy={isLoading}>
        <QueryState query={query} />
        {data !== null && data.shown.length === 0 && <NoHosts all={data.all} />}
        {data !== null && (data.shown.length > 0 || (data.all === 0 && data.withoutHost !== null)) && (
          <>
            <HostTable
              hosts={
                data.withoutHost === null || search !== '' || data.shown.length < data.found
                  ? data.shown
                  : [...data.shown, data.withoutHost]
              }
              lines={data.lines}
              open={mayChange ? setDialog : null}
            />
            <More shown={data.shown.length} all={data.found} more={more} />
          </>
        )}
      </div>
      {dialog?.kind === 'name' && (
        <NameDialog host={dialog.host} done={reload} close={() => setDialog(null)} />
      )}
      {dialog?.kind === 'delete' && (
        <Confirm
          title={`Delete ${dialog.host.hostname}?`}
          verb="Delete host"
          typed={dialog.host.hostname}
          act={async () => {
            await api.removeHost(project.id, dialog.host.id);
            reload();
          }}
          close={() => setDialog(null)}
        >
          {`Its counts stay in the total of ${project.name}, without a host. If a log names ${dialog.host.hostname} again, it is registered again with another ID and counts from zero. This cannot be undone.`}
        </Confirm>
      )}
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

/** The orders, with the titles of their columns. */
const SORT_TITLES = { requests: 'Requests', attacks: 'Attacks', rate: 'Attack rate', name: 'Host' } as const;
type HostSort = keyof typeof SORT_TITLES;
const HOST_SORTS = Object.keys(SORT_TITLES) as HostSort[];

function sortOf({ sort }: View): TableSort {
  const name = HOST_SORTS.find((one) => one === sort) ?? 'requests';
  return { by: SORT_TITLES[name], descending: name !== 'name' };
}

const COLUMNS: readonly Column<HostTotals>[] = [
  {
    title: 'Host',
    compare: byText(({ hostname }) => hostname),
    cell: ({ id, hostname }) =>
      id === NO_HOST ? (
        <span class="faint" title={NO_HOST_TITLE}>
          No host
        </span>
      ) : (
        <PageLink class="cut" to={{ page: 'dashboard', hosts: [id] }}>
          {hostname}
        </PageLink>
      ),
  },
  numberColumn('Requests', ({ requests }) => requests),
  {
    ...numberColumn('Attacks', ({ attacks }) => attacks),
    cell: ({ attacks }) => <span class={attacks > 0 ? 'attack' : 'faint'}>{formatCount(attacks)}</span>,
  },
  {
    // Of hosts without requests, more attacks are a higher rate.
    ...numberColumn('Attack rate', ({ attacks, requests }) => attacks / Math.max(1, requests)),
    cell: ({ attacks, requests }) => share(attacks, requests),
  },
];

interface HostTableProps {
  hosts: readonly HostTotals[];
  lines: ReadonlyMap<string, HostFigures>;
  /** Opens a dialog. Null: the user may not change hosts. */
  open: ((dialog: HostDialog) => void) | null;
}

function HostTable({ hosts, lines, open }: HostTableProps) {
  const { view, go } = useApp();
  const trend = (line: HostFigures | undefined) =>
    line && (
      <span title={SPARKLINE_KEY}>
        <Sparkline {...line} />
      </span>
    );
  const buttons = (host: HostTotals) =>
    host.id !== NO_HOST && (
      <div class="buttons">
        <RowButton label="Rename" name={host.hostname} onClick={() => open?.({ kind: 'name', host })} />
        <RowButton label="Delete" name={host.hostname} onClick={() => open?.({ kind: 'delete', host })} />
      </div>
    );
  const columns: Column<HostTotals>[] = [
    ...COLUMNS,
    { title: 'Trend', cell: ({ id }) => trend(lines.get(id)) },
    { title: 'ID', isWide: true, cell: ({ id }) => id !== NO_HOST && <code class="faint">{id}</code> },
    ...(open === null ? [] : [actionsColumn(buttons)]),
  ];
  const sortBy = (title: string) =>
    go({ sort: HOST_SORTS.find((name) => SORT_TITLES[name] === title) ?? null });
  return (
    <Table
      name="Hosts"
      columns={columns}
      rows={hosts}
      keyOf={({ id }) => id}
      sort={sortOf(view)}
      onSort={({ by }) => sortBy(by)}
    />
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
  const isNew = host === null;
  return (
    <FormDialog
      title={isNew ? 'Add a host' : `Rename ${host.hostname}`}
      verb={isNew ? 'Add' : 'Rename'}
      submit={({ hostname = '' }) => submit(hostname)}
      close={close}
    >
      <Field
        label="Host name"
        name="hostname"
        required
        spellcheck={false}
        autocapitalize="none"
        {...(isNew ? {} : { defaultValue: host.hostname, hint: RENAME_HINT })}
      />
    </FormDialog>
  );
}

const RENAME_HINT =
  'The host keeps its ID and counts. Log lines with the old name will count for a new host.';
