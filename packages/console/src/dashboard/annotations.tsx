/** Annotations, such as releases: a list below the chart, and the numbers before and after one. */
import type { Annotation } from '@wafstat/client';
import { useState } from 'preact/hooks';
import { type App, useApp, useProject } from '../app.ts';
import { sumOf, total } from '../counts.ts';
import { countedCategories, keptFilters } from '../filters.ts';
import {
  type Change,
  change,
  duration,
  formatCount,
  formatTime,
  rateChange,
  share,
  shortTime,
} from '../format.ts';
import { Button } from '../parts/button.tsx';
import { PageLink } from '../parts/frame.tsx';
import { Message, QueryState } from '../parts/states.tsx';
import { useQuery } from '../use-query.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** A day before and after has the same hours. */
const LENGTHS_MS = [15 * MINUTE_MS, 60 * MINUTE_MS, DAY_MS / 4, DAY_MS, 7 * DAY_MS];

/** Newest first, in one line that scrolls. The chart marks the same ones. */
export function Annotations({ annotations }: { annotations: readonly Annotation[] }) {
  const { zone, now } = useApp();
  if (annotations.length === 0) return null;
  return (
    <ul class="bursts annotations" aria-label="Annotations">
      {annotations.map(({ id, time, text }) => (
        <li key={id}>
          <PageLink class="burst" to={{ open: { kind: 'annotation', value: id } }} title="Before and after">
            <b>{shortTime(time, zone, now()).slice(0, -3)}</b>
            <span class="cut">{text}</span>
          </PageLink>
        </li>
      ))}
    </ul>
  );
}

/** The side panel of an annotation: as much time before it as after it. */
export function BeforeAfter({ id }: { id: string }) {
  const { api } = useApp();
  const project = useProject();
  const query = useQuery(`annotation ${project.id} ${id}`, async (signal) => {
    const { items } = await api.client(project.id).annotations({ signal });
    return items.find((annotation) => annotation.id === id);
  });
  if (query.isLoading || query.failure !== null) return <QueryState query={query} />;
  if (!query.data) return <Message title="Not found">This annotation was deleted.</Message>;
  return <Comparison annotation={query.data} />;
}

function Comparison({ annotation: { time, text, link } }: { annotation: Annotation }) {
  const app = useApp();
  const { zone, go } = app;
  const project = useProject();
  const [openedAt] = useState(app.now());
  const elapsedMs = openedAt - time;
  const over = LENGTHS_MS.filter((ms) => ms <= elapsedMs);
  const lengths = over.length > 0 ? over : elapsedMs >= MINUTE_MS ? [elapsedMs] : [];
  const [lengthMs, setLength] = useState(lengths.findLast((ms) => ms <= DAY_MS) ?? 0);
  return (
    <>
      <p>
        <strong>{text}</strong>
        {`, ${formatTime(time, zone)} `}
        {link !== null && (
          <a class="definition" href={link} target="_blank" rel="noopener noreferrer">
            {new URL(link).host}
          </a>
        )}
      </p>
      {lengthMs === 0 ? (
        <Message title="There is nothing to compare yet">
          {elapsedMs < 0 ? 'The annotation is in the future.' : 'It is less than a minute old.'}
        </Message>
      ) : (
        <>
          <div class="form-end">
            <div class="segments compact" role="group" aria-label="Time before and after">
              {lengths.map((ms) => (
                <button key={ms} type="button" aria-pressed={ms === lengthMs} onClick={() => setLength(ms)}>
                  {duration(ms)}
                </button>
              ))}
            </div>
            <Button
              onClick={() =>
                go({ selectedRange: { from: Math.max(0, time - lengthMs), to: time + lengthMs }, open: null })
              }
            >
              Show this range
            </Button>
          </div>
          <Figures key={`${project.id} ${time} ${lengthMs}`} time={time} lengthMs={lengthMs} />
        </>
      )}
    </>
  );
}

/** What the hosts and filters of the view select. */
function Figures({ time, lengthMs }: { time: number; lengthMs: number }) {
  const app = useApp();
  const { zone, view } = app;
  const project = useProject();
  const { hosts, filters } = view;
  const key = JSON.stringify([project.id, time, lengthMs, hosts, filters]);
  const query = useQuery(key, (signal) => readPeriods(app, project.id, time, lengthMs, signal));
  const { data } = query;
  if (data === null) return <QueryState query={query} />;
  const { firstSeen, rows } = data;
  return (
    <>
      <table class="before-after">
        <thead>
          <tr>
            <td />
            <th scope="col">{`${duration(lengthMs)} before`}</th>
            <th scope="col">{`${duration(lengthMs)} after`}</th>
            <th scope="col">Change</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ title, before, after, difference, isBad }) => (
            <tr key={title}>
              <th scope="row">{title}</th>
              <td class="number">{before}</td>
              <td class="number">{after}</td>
              <td class={`number ${isBad && difference?.direction === 'up' ? 'attack' : ''}`}>
                {difference?.text ?? '–'}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {keptFilters(filters).length > 0 && (
        <p class="hint">Requests are not filtered, so they are not shown.</p>
      )}
      {firstSeen !== null && firstSeen > time - lengthMs && (
        <p class="hint">{`There is no data before ${formatTime(firstSeen, zone)}: choose a shorter time.`}</p>
      )}
    </>
  );
}

interface Row {
  title: string;
  before: string;
  after: string;
  /** Null: one of them is unknown. */
  difference: Change | null;
  /** More is worse. */
  isBad: boolean;
}

async function readPeriods(
  { api, view: { hosts, filters } }: App,
  project: string,
  time: number,
  lengthMs: number,
  signal: AbortSignal,
): Promise<{ firstSeen: number | null; rows: Row[] }> {
  const edges = [Math.max(0, time - lengthMs), time, time + lengthMs];
  const kept = keptFilters(filters);
  const isFiltered = kept.length > 0;
  const query = { edges, hosts, filters: kept, hasResponses: !isFiltered, signal };
  const figures = await api.figures(project, query);
  const counted = countedCategories(filters);
  const [attacks, blocked] = [sumOf(figures.attacks, counted), sumOf(figures.blocked, counted)];
  const counts = (title: string, [before = 0, after = 0]: readonly number[], isBad: boolean): Row => ({
    ...{ title, before: formatCount(before), after: formatCount(after), isBad },
    difference: change(after, before),
  });
  const rate = (title: string, parts: readonly number[], wholes: readonly number[], isBad: boolean): Row => {
    const [before = Number.NaN, after = Number.NaN] = parts.map((part, i) => part / (wholes[i] ?? 0));
    const [beforeText = '', afterText = ''] = parts.map((part, i) => share(part, wholes[i] ?? 0));
    const difference = Number.isFinite(after - before) ? rateChange(after, before) : null;
    return { title, before: beforeText, after: afterText, difference, isBad };
  };
  const { requests, responses } = figures;
  // The log of these requests has codes.
  const coded = requests.map((count, i) => count - (responses.none[i] ?? 0));
  return {
    firstSeen: figures.first_seen,
    rows: [
      ...(isFiltered ? [] : [counts('Requests', requests, false)]),
      ...(isFiltered || total(coded) === 0
        ? []
        : [rate('Server errors (5xx)', responses['5xx'], coded, true)]),
      counts('Attacks', attacks, true),
      ...(isFiltered ? [] : [rate('Attack rate', attacks, requests, true)]),
      rate('Blocked', blocked, attacks, false),
    ],
  };
}
