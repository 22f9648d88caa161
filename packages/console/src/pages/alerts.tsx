/** The alerts of the project, and the history of their incidents. */
import { type Alert, CATEGORY_NAMES, type Incident } from '@wafstat/client';
import { useApp, useProject } from '../app.ts';
import { formatCount, formatTime } from '../format.ts';
import { PageHead } from '../parts/frame.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { QueryState } from '../parts/states.tsx';
import { byText, type Column, RowName, StateLabel, Table } from '../parts/table.tsx';
import { useQuery } from '../use-query.ts';
import type { Zone } from '../zone.ts';

const ROWS = 100;

export function AlertsPage() {
  const { api, view, zone } = useApp();
  const project = useProject();
  const { limit, more } = useLimit(ROWS, project.id);
  const query = useQuery(
    `alerts ${project.id} ${limit}`,
    async (signal) => {
      const client = api.client(project.id);
      return {
        alerts: await client.alerts({ signal }),
        incidents: await client.incidents({ limit, signal }),
      };
    },
    { refresh: view.live },
  );
  const { data } = query;
  return (
    <div class="page">
      <PageHead level={1} title="Alerts" />
      <QueryState query={query} />
      {data !== null && (
        <div class="content">
          {data.alerts.total === 0 ? (
            <p class="empty">
              No alerts. Add one with <code>wafstat alert add</code> or the API.
            </p>
          ) : (
            <Table
              name="Alerts"
              columns={alertColumns(zone)}
              rows={data.alerts.items}
              keyOf={({ id }) => id}
            />
          )}
          <PageHead level={2} title="Incidents" />
          {data.incidents.total === 0 ? (
            <p class="empty">No incidents.</p>
          ) : (
            <Table
              name="Incidents"
              columns={incidentColumns(zone)}
              rows={data.incidents.items}
              keyOf={({ id }) => id}
            />
          )}
          {data.incidents.total > data.incidents.items.length && (
            <More shown={data.incidents.items.length} all={data.incidents.total} more={more} />
          )}
        </div>
      )}
    </div>
  );
}

function alertColumns(zone: Zone): Column<Alert>[] {
  return [
    { title: 'Alert', cell: ({ name }) => <RowName name={name} />, compare: byText(({ name }) => name) },
    { title: 'Rule', cell: ({ text }) => <span class="wrap">{text}</span> },
    { title: 'Messages to', cell: ({ target }) => <span class="wrap">{target}</span> },
    {
      title: 'State',
      cell: ({ open_since }) =>
        open_since === null ? (
          <StateLabel kind="active" text="Quiet" />
        ) : (
          <StateLabel kind="silent" text={`Open since ${formatTime(open_since, zone)}`} />
        ),
    },
  ];
}

function incidentColumns(zone: Zone): Column<Incident>[] {
  return [
    { title: 'From', cell: ({ since }) => formatTime(since, zone) },
    { title: 'To', cell: ({ until }) => (until === null ? 'open' : formatTime(until, zone)) },
    { title: 'Alert', cell: ({ alert }) => <RowName name={alert} /> },
    {
      title: 'Attacks',
      isNumber: true,
      cell: ({ total, attacks, percent, until }) => {
        if (percent !== null) return `${percent}%`;
        return until === null && attacks !== null ? `${count(attacks)} when opened` : count(total ?? attacks);
      },
    },
    { title: 'Usually', isNumber: true, isWide: true, cell: ({ usual }) => count(usual) },
    {
      title: 'Mostly',
      cell: (incident) => (
        <span class="wrap">
          {[incident.category && CATEGORY_NAMES[incident.category], incident.host, incident.source]
            .filter(Boolean)
            .join(', ') || '–'}
        </span>
      ),
    },
    { title: 'Messages', cell: ({ deliveries }) => <Deliveries deliveries={deliveries} /> },
  ];
}

/** `open delivered, closed waiting: no response within 10 s`. */
function Deliveries({ deliveries }: Pick<Incident, 'deliveries'>) {
  const isFailed = deliveries.some(
    ({ status, error }) => status === 'failed' || (status === 'waiting' && error),
  );
  const text = deliveries
    .map(
      ({ event, status, error }) =>
        `${event} ${status}${status !== 'delivered' && error ? `: ${error}` : ''}`,
    )
    .join(', ');
  return <StateLabel kind={isFailed ? 'silent' : 'active'} text={text} />;
}

function count(number: number | null): string {
  return number === null ? '–' : formatCount(number);
}
