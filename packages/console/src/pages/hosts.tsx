/** The hosts of the project with their statistics in the selected range. */
import { useState } from 'preact/hooks';
import type { HostFigures } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { formatCount, share } from '../format.ts';
import {
  byRate,
  HOST_COMPARE,
  type HostTotals,
  hostTotals,
  NO_HOST,
  NO_HOST_TITLE,
  withoutHost,
} from '../host-totals.ts';
import { Button } from '../parts/button.tsx';
import { Controls } from '../parts/controls.tsx';
import { Confirm, FormDialog } from '../parts/dialog.tsx';
import { Field } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { SPARKLINE_KEY, Sparkline } from '../parts/sparkline.tsx';
import { Message, QueryState } from '../parts/states.tsx';
import { actionsColumn, byText, type Column, numberColumn, RowButton, Table } from '../parts/table.tsx';
import { endsNow, resolveRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import type { HostSort, View } from '../view.ts';

const ROWS_MAX = 25;
const LINE_POINTS = 60;

/** An open dialog. Without a host, a new one is named. */
type HostDialog = { kind: 'name'; host: HostTotals | null } | { kind: 'delete'; host: HostTotals };

export function HostsPage() {
  const { api, view, zone, now, go } = useApp();
  const project = useProject();
  const [dialog, setDialog] = useState<HostDialog | null>(null);
  const { selectedRange, search, offset } = view;
  const sort = sortOf(view);
  const query = useQuery(
    JSON.stringify([project.id, selectedRange, zone.id, sort, search, offset]),
    async (signal) => {
      const range = resolveRange(selectedRange, zone, now());
      const { items, ...whole } = await api.figures(project.id, { ...range, signal });
      const found = hostTotals(items).filter(({ hostname }) =>
        hostname.includes(search.trim().toLowerCase()),
      );
      const shown = found.toSorted(HOST_COMPARE[sort]).slice(offset, offset + ROWS_MAX);
      const some = { ...range, hosts: shown.map(({ id }) => id), points: LINE_POINTS, signal };
      const lines = shown.length === 0 ? [] : (await api.figures(project.id, some)).items;
      return {
        shown,
        lines: new Map(lines.map((host) => [host.id, host])),
        offset,
        found: found.length,
        all: items.length,
        withoutHost: withoutHost(whole, items),
      };
    },
    { refresh: view.live && endsNow(selectedRange) && dialog === null },
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
        <SearchBox
          name="Find a host"
          value={search}
          search={(text) => go({ search: text, offset: 0 }, 'replace')}
        />
      </Controls>
      <div class="content" aria-busy={isLoading}>
        <QueryState query={query} />
        {data !== null && data.shown.length === 0 && <NoHosts all={data.all} />}
        {data !== null && (data.shown.length > 0 || (data.all === 0 && data.withoutHost !== null)) && (
          <>
            <HostTable
              hosts={
                data.withoutHost === null || search !== '' || offset + ROWS_MAX < data.found
                  ? data.shown
                  : [...data.shown, data.withoutHost]
              }
              lines={data.lines}
              open={mayChange ? setDialog : null}
            />
            <Pager offset={data.offset} found={data.found} />
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

interface HostTableProps {
  hosts: readonly HostTotals[];
  lines: ReadonlyMap<string, HostFigures>;
  /** Opens a dialog. Null: the user may not change hosts. */
  open: ((dialog: HostDialog) => void) | null;
}

const COLUMN_TITLES: Readonly<Record<HostSort, string>> = {
  requests: 'Requests',
  attacks: 'Attacks',
  rate: 'Attack rate',
  name: 'Host',
};

const HOST_SORTS = Object.keys(COLUMN_TITLES) as HostSort[];

function sortOf({ sort }: View): HostSort {
  return HOST_SORTS.find((name) => name === sort) ?? 'requests';
}

function HostTable({ hosts, lines, open }: HostTableProps) {
  const { view, go } = useApp();
  const columns: Column<HostTotals>[] = [
    {
      title: 'Host',
      compare: byText(({ hostname }) => hostname),
      cell: ({ id, hostname }) =>
        id === NO_HOST ? (
          <span class="faint" title={NO_HOST_TITLE}>
            No host
          </span>
        ) : (
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
    numberColumn('Requests', ({ requests }) => requests),
    {
      ...numberColumn('Attacks', ({ attacks }) => attacks),
      cell: ({ attacks }) => <span class={attacks > 0 ? 'attack' : 'faint'}>{formatCount(attacks)}</span>,
    },
    {
      title: 'Attack rate',
      isNumber: true,
      compare: byRate,
      cell: ({ attacks, requests }) => share(attacks, requests),
    },
    { title: 'Trend', cell: ({ id }) => <HostTrend host={lines.get(id)} /> },
    { title: 'ID', isWide: true, cell: ({ id }) => id !== NO_HOST && <code class="faint">{id}</code> },
    ...(open === null ? [] : [actionsColumn((host: HostTotals) => <HostButtons host={host} open={open} />)]),
  ];
  const sort = sortOf(view);
  const sortBy = (title: string) =>
    go({ sort: HOST_SORTS.find((name) => COLUMN_TITLES[name] === title) ?? null, offset: 0 });
  return (
    <Table
      name="Hosts"
      columns={columns}
      rows={hosts}
      keyOf={({ id }) => id}
      sort={{ by: COLUMN_TITLES[sort], descending: sort !== 'name' }}
      onSort={({ by }) => sortBy(by)}
    />
  );
}

function HostButtons({ host, open }: { host: HostTotals; open(dialog: HostDialog): void }) {
  if (host.id === NO_HOST) return null;
  return (
    <div class="buttons">
      <RowButton label="Rename" name={host.hostname} onClick={() => open({ kind: 'name', host })} />
      <RowButton label="Delete" name={host.hostname} onClick={() => open({ kind: 'delete', host })} />
    </div>
  );
}

function HostTrend({ host }: { host: HostFigures | undefined }) {
  if (host === undefined) return null;
  return (
    <span title={SPARKLINE_KEY}>
      <Sparkline requests={host.requests} attacks={host.attacks} />
    </span>
  );
}

function Pager({ offset, found }: { offset: number; found: number }) {
  const { go } = useApp();
  if (found <= ROWS_MAX) return null;
  const end = offset + ROWS_MAX;
  const [first, last, all] = [offset + 1, Math.min(found, end), found].map(formatCount);
  return (
    <div class="pager">
      <Button disabled={offset === 0} onClick={() => go({ offset: Math.max(0, offset - ROWS_MAX) })}>
        Previous
      </Button>
      <span class="hint">{`${first} to ${last} of ${all}`}</span>
      <Button disabled={end >= found} onClick={() => go({ offset: end })}>
        Next
      </Button>
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
