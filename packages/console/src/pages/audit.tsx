/** The audit trail of the domain, for administrators: who changed what, when and from where. */
import { useState } from 'preact/hooks';
import { AUDIT_KINDS, type AuditFilter, type AuditRecord } from '../api.ts';
import { useApp } from '../app.ts';
import { csv, download } from '../export.ts';
import { formatTime } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { PageHead } from '../parts/frame.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { Problem, QueryState } from '../parts/states.tsx';
import { type Column, StateLabel, Table } from '../parts/table.tsx';
import { useAction, useQuery } from '../use-query.ts';
import { startOfDay, type Zone, zoneName } from '../zone.ts';

const ROWS = 100;
/** A spreadsheet can still open it. */
const EXPORTED_MAX = 100_000;

export function AuditPage() {
  const { api, view, zone, now, go } = useApp();
  const { run, problem, isRunning } = useAction();
  const [action, setAction] = useState('');
  const [days, setDays] = useState({ from: '', to: '' });
  const filter: AuditFilter = { user: view.search.trim(), action, ...timesOf(days, zone) };
  const key = JSON.stringify(filter);
  const { limit, more } = useLimit(ROWS, key);
  const query = useQuery(`audit ${key} ${limit}`, (signal) => api.auditRecords(filter, limit, signal));
  const save = () =>
    run(async () => download('audit.csv', auditCsv((await api.auditRecords(filter, EXPORTED_MAX)).items)));
  const { data, isLoading } = query;
  const dayField = (name: 'from' | 'to', label: string) => (
    <label class="inline-field">
      {label}
      <input
        type="date"
        value={days[name]}
        onChange={(event) => setDays({ ...days, [name]: event.currentTarget.value })}
      />
    </label>
  );
  return (
    <div class="page">
      <PageHead level={1} title="Audit trail">
        <Button icon="download" disabled={isRunning} onClick={save}>
          Download CSV
        </Button>
      </PageHead>
      <div class="controls">
        <SearchBox
          name="Name or ID of a user"
          value={view.search}
          search={(search) => go({ search }, 'replace')}
        />
        <select aria-label="Action" value={action} onChange={(event) => setAction(event.currentTarget.value)}>
          <option value="">All actions</option>
          {Object.entries(AUDIT_KINDS).map(([kind, name]) => (
            <option key={kind} value={kind}>
              {name}
            </option>
          ))}
        </select>
        {dayField('from', 'From')}
        {dayField('to', 'Until')}
        <span class="hint">{`Days in ${zoneName(now(), zone)}`}</span>
      </div>
      <Problem text={problem} />
      <QueryState query={query} />
      {data !== null && (
        <div class={`content ${isLoading ? 'stale' : ''}`} aria-busy={isLoading}>
          {data.items.length === 0 ? (
            <p class="empty">No matching record.</p>
          ) : (
            <Table name="Audit trail" columns={columnsIn(zone)} rows={data.items} keyOf={keyOf} />
          )}
          {data.hasMore && <More shown={data.items.length} more={more} />}
        </div>
      )}
    </div>
  );
}

/** Days of the time zone; the last one is included. */
function timesOf({ from, to }: { from: string; to: string }, zone: Zone) {
  const start = (day: string, later: number) =>
    day === '' ? undefined : startOfDay(Date.parse(day) / 86_400_000 + later, zone);
  return { from: start(from, 0), to: start(to, 1) };
}

/** A change whose commit failed has two records with the same ID. */
const keyOf = ({ id, outcome }: AuditRecord) => `${id} ${outcome}`;

function columnsIn(zone: Zone): Column<AuditRecord>[] {
  return [
    { title: 'Time', cell: ({ time }) => formatTime(Date.parse(time), zone) },
    { title: 'User', cell: ({ user }) => user ?? <span class="faint">unknown</span> },
    {
      title: 'From',
      cell: ({ via, address }) => (
        <div class="stacked">
          <span>{address ?? '–'}</span>
          <span class="hint">{via}</span>
        </div>
      ),
    },
    { title: 'Action', cell: ({ action }) => <code>{action}</code> },
    {
      title: 'What',
      cell: (record) => (
        <div class="stacked">
          <span class="wrap">{`${record.object.type} ${record.object.name ?? record.object.id ?? ''}`}</span>
          <span class="hint wrap">{changeText(record)}</span>
        </div>
      ),
    },
    {
      title: 'Outcome',
      cell: ({ outcome, reason }) => (
        <StateLabel
          kind={outcome === 'done' ? 'active' : 'silent'}
          text={reason === undefined ? outcome : `${outcome}: ${reason}`}
        />
      ),
    },
  ];
}

/** `roles: {} to {"p1":["reader"]}` for each field that changed. */
function changeText({ before = {}, after = {} }: AuditRecord): string {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const text = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
  return names
    .map(
      (name) => [name, [before[name], after[name]].filter((value) => value !== undefined).map(text)] as const,
    )
    .map(([name, values]) => `${name}: ${values.join(' to ')}`)
    .join(', ');
}

function auditCsv(records: readonly AuditRecord[]): string {
  const titles = 'time user user_id via address request_id action object_type object_id object_name';
  return csv([
    [...titles.split(' '), 'outcome', 'reason', 'before', 'after'],
    ...records.map(({ object, before, after, ...record }) =>
      [
        ...[record.time, record.user, record.user_id, record.via, record.address, record.request_id],
        ...[record.action, object.type, object.id, object.name, record.outcome, record.reason],
        ...[before, after].map((values) => values && JSON.stringify(values)),
      ].map((value) => value ?? ''),
    ),
  ]);
}
