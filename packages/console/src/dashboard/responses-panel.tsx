/** What clients got: requests by class of their response code, bytes, and the pages with the most errors. */
import { type Annotation, PAGE_CODES, type PageCode } from '@wafstat/client';
import { useMemo, useRef, useState } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { total } from '../counts.ts';
import { keptFilters } from '../filters.ts';
import { formatBytes, formatCount, plural, share } from '../format.ts';
import { Panel } from '../parts/panel.tsx';
import { Ranking, TOP_ROWS } from '../parts/ranking.tsx';
import type { TimeRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import { useVisible } from './attacks-panel.tsx';
import { Chart } from './chart.tsx';
import type { Dashboard } from './data.ts';
import type { Layer, Pane } from './pane.ts';
import { Hours } from './top-lists.tsx';

/** From the bottom of the stack: errors are read from the axis. */
const CODE_LAYERS = [
  ['5xx', '5xx server errors', 'attack'],
  ['4xx', '4xx client errors', 'category-robot'],
  ['3xx', '3xx redirects', 'code-redirect'],
  ['2xx', '2xx success', 'code-success'],
  ['1xx', '1xx', 'code-success'],
  ['none', 'no code', 'edge'],
] as const;

interface ResponsesPanelProps {
  now: Dashboard;
  annotations: readonly Annotation[];
  /** Why the latest load failed. */
  failure: unknown;
}

/** Nothing, if the log has neither codes nor bytes. */
export function ResponsesPanel({ now, annotations, failure }: ResponsesPanelProps) {
  const app = useApp();
  const { view, zone, go } = app;
  const { counts, edges } = now;
  const panes = useMemo(() => panesOf(counts.responses), [counts]);
  const isFiltered = keptFilters(view.filters).length > 0;
  if (panes.length === 0 && !isFiltered) return null;
  const layersOf = (wanted: Pane['name']) => panes.find(({ name }) => name === wanted)?.layers ?? [];
  const codes = layersOf('responses');
  const requests = total(counts.requests);
  const text = codes.map(({ title, counts }) => `${title} ${formatCount(total(counts))}`).join(', ');
  return (
    <Panel
      title="Responses"
      class="responses"
      failure={failure}
      extras={
        isFiltered ? (
          <span class="hint">Hidden: filters select attacks, not responses</span>
        ) : (
          <span class="hint">{bandwidthText(now)}</span>
        )
      }
    >
      {!isFiltered && (
        <>
          <div class="chart-box">
            <Chart
              panes={panes}
              edges={edges}
              zone={zone}
              firstSeen={now.firstSeen}
              unfinished={(edges.at(-1) ?? 0) > app.now()}
              label={`Responses: ${text}. Use the arrow keys to read the points, with Shift to select, Enter to zoom in.`}
              bursts={[]}
              annotations={annotations}
              zoom={(from, to) => go({ selectedRange: { from, to } })}
              showBurst={() => {}}
              showAnnotation={(id) => go({ open: { kind: 'annotation', value: id } })}
            />
          </div>
          <ul class="legend codes" aria-label="Responses">
            {codes.map(({ key, title, colour, counts }) => (
              <li key={key} class={`key ${key}`} style={{ '--key': `var(--${colour})` }}>
                {title}
                <b>{formatCount(total(counts))}</b>
                {share(total(counts), requests)}
              </li>
            ))}
            {layersOf('bytes').map(({ key, title, colour, counts }) => (
              <li key={key} class="key" style={{ '--key': `var(--${colour})` }}>
                {title}
                <b>{formatBytes(total(counts))}</b>
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}

function panesOf(rows: Dashboard['counts']['responses']): Pane[] {
  const some = ({ counts }: Layer) => total(counts) > 0;
  const codes = CODE_LAYERS.map(([key, title, colour]): Layer => ({ key, title, colour, counts: rows[key] }));
  const bytes: Layer[] = [
    { key: 'sent', title: 'Sent', colour: 'accent', counts: rows.sent },
    { key: 'received', title: 'Received', colour: 'good', counts: rows.received },
  ];
  const errors = codes.filter((layer) => layer.key === '5xx' && some(layer));
  const panes: Pane[] = [
    { name: 'responses', title: 'Responses', kind: 'stack', layers: codes.filter(some), ghost: null },
    // With a scale of its own: a few errors among many requests would not be visible.
    { name: 'errors', title: 'Server errors (5xx)', kind: 'area', layers: errors, ghost: null },
    {
      ...{ name: 'bytes', title: 'Bytes', kind: 'lines', unit: 'bytes' },
      ...{ layers: bytes.filter(some), ghost: null },
    },
  ];
  const hasCodes = codes.some((layer) => layer.key !== 'none' && some(layer));
  return panes.filter(({ name, layers }) => layers.length > 0 && (name !== 'responses' || hasCodes));
}

/** Of bytes sent. An interval is a point of the chart: the peak of the API is the busiest minute. */
function bandwidthText({ counts, edges }: Dashboard): string {
  const { sent } = counts.responses;
  const seconds = (i: number) => ((edges[i + 1] ?? 0) - (edges[i] ?? 0)) / 1_000;
  if (total(sent) === 0) return '';
  const whole = ((edges.at(-1) ?? 0) - (edges[0] ?? 0)) / 1_000;
  // The first and the last point may be shorter than the minutes that their bytes are from.
  const rates = sent.map((bytes, i) => bytes / Math.max(60, seconds(i)));
  return `${formatBytes(total(sent) / Math.max(60, whole))}/s sent on average, ${formatBytes(Math.max(...rates))}/s in the busiest interval`;
}

interface ErrorPagesProps {
  range: TimeRange;
  /** Identifies the range and hosts. */
  queryKey: string;
  /** Not yet: something more important is loading. */
  wait: boolean;
}

/** Without responses 500, the first of these that has responses is shown until the user chooses a code. */
const OTHER_CODES: readonly PageCode[] = [502, 404];

/** The paths with the most responses of one code. */
export function ErrorPagesPanel({ range, queryKey, wait }: ErrorPagesProps) {
  const { api, view, go } = useApp();
  const project = useProject();
  const [chosen, setChosen] = useState<PageCode | null>(null);
  const { hosts } = view;
  const box = useRef<HTMLDivElement>(null);
  const isVisible = useVisible(box, !wait);
  const query = useQuery(
    `${queryKey} ${chosen}`,
    async (signal) => {
      const pagesOf = async (code: PageCode) => {
        const query = { ...range, hosts, code, top: TOP_ROWS, signal };
        return { ...(await api.errorPages(project.id, query)), code };
      };
      const first = await pagesOf(chosen ?? 500);
      if (chosen !== null || first.requests > 0) return first;
      for (const code of OTHER_CODES) {
        const pages = await pagesOf(code);
        if (pages.requests > 0) return pages;
      }
      return first;
    },
    { wait: wait || !isVisible },
  );
  const { data, failure, isLoading } = query;
  const list = isLoading ? null : data;
  const code = chosen ?? data?.code;
  const most = Math.max(1, ...(list?.items ?? []).map(({ num }) => num));
  return (
    <div class="error-pages" ref={box}>
      <Panel
        title="Error pages"
        class="top-list"
        failure={failure}
        extras={
          <>
            <div class="segments compact" role="group" aria-label="Response code">
              {PAGE_CODES.map((one) => (
                <button key={one} type="button" aria-pressed={one === code} onClick={() => setChosen(one)}>
                  {one}
                </button>
              ))}
            </div>
            {list !== null && <Hours list={list} range={range} />}
          </>
        }
      >
        <Ranking columns={['Page', 'Requests']} isLoading={isVisible && isLoading && failure === null}>
          {list?.items.map(({ key, num, host, host_id, error }) => (
            <tr key={`${host_id} ${key}`}>
              <th scope="row">
                <span class="bar" style={{ width: `${(num / most) * 100}%` }} />
                <span class="label">
                  {host_id !== null && (
                    <button
                      class="link"
                      type="button"
                      title={`Only ${host}`}
                      onClick={() => go({ hosts: [host_id] })}
                    >
                      {host}
                    </button>
                  )}
                  <code class="cut" title={key}>
                    {key}
                  </code>
                </span>
              </th>
              <td class="number">
                {formatCount(num)}
                {error > 0 && <span class="faint">{` up to +${formatCount(error)}`}</span>}
              </td>
            </tr>
          ))}
        </Ranking>
        {list !== null && (
          <p class="hint">
            {list.requests === 0
              ? `No responses ${code} with a known path`
              : `${plural(list.requests, 'request')}, ${plural(list.total, 'page')}`}
          </p>
        )}
      </Panel>
    </div>
  );
}
