/** The attacks behind the numbers, newest first. A click on one opens it. */
import type { AttackEvent, EventList } from '@wafstat/client';
import { CATEGORY_NAMES, ruleName } from '@wafstat/client';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { curlCommand, wafstatCommand } from '../export.ts';
import { apiFilter, filterTitle } from '../filters.ts';
import { formatCount, plural, shortTime } from '../format.ts';
import { copyItems } from '../parts/menu.tsx';
import { More, useLimit } from '../parts/more.tsx';
import { Panel } from '../parts/panel.tsx';
import { isForbidden, Skeleton } from '../parts/states.tsx';
import { StateLabel } from '../parts/table.tsx';
import type { TimeRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';

const ATTACKS_ID = 'attacks';
const ROWS = 50;
/** The longest page of the API. More are for the command line. */
const ROWS_MAX = 1_000;
const REFRESH_MS = 60_000;

interface AttacksPanelProps {
  range: TimeRange;
  /** Something more important is loading. */
  wait: boolean;
  refresh: boolean;
}

export function AttacksPanel({ range, wait, refresh }: AttacksPanelProps) {
  const { api, view } = useApp();
  const project = useProject();
  const { hosts, filters } = view;
  const box = useRef<HTMLDivElement>(null);
  const isVisible = useVisible(box, !wait);
  // Without the range: the list stays as long as it was while time passes.
  const selection = JSON.stringify([project.id, view.selectedRange, hosts, filters]);
  const { limit, more } = useLimit(ROWS, selection);
  const { data, failure, isLoading } = useQuery(
    `${selection} ${limit}`,
    (signal) =>
      api.client(project.id).events({
        ...range,
        ...apiFilter(filters),
        ...(hosts.length === 0 ? {} : { hosts }),
        limit: Math.min(limit, ROWS_MAX),
        signal,
      }),
    { refresh, refreshMs: REFRESH_MS, wait: wait || !isVisible },
  );
  const query = { ...range, origin: location.origin, project: project.id, hosts, filters };
  return (
    <div id={ATTACKS_ID} ref={box} tabIndex={-1}>
      <Panel
        title="Attacks"
        class={`attacks-panel ${isLoading && data !== null ? 'stale' : ''}`}
        failure={isForbidden(failure) ? null : failure}
        extras={data !== null && <span class="hint">{countText(data)}</span>}
        exports={copyItems(
          curlCommand({ ...query, path: 'event', parameters: { pagesize: '100' } }),
          wafstatCommand('events --all', query),
        )}
      >
        {isForbidden(failure) && (
          <p class="empty">Only administrators of this project can list its attacks.</p>
        )}
        {isVisible && data === null && failure === null && <Skeleton />}
        {data !== null && data.items.length === 0 && (
          <p class="empty">{emptyText(data, filters.map(filterTitle))}</p>
        )}
        {data !== null && data.items.length > 0 && <AttackTable events={data.items} />}
        {data !== null && data.items.length < ROWS_MAX && (
          <More shown={data.items.length} all={data.total} more={more} />
        )}
        {data !== null && data.items.length >= ROWS_MAX && data.total > ROWS_MAX && (
          <p class="hint">
            {`The newest ${formatCount(ROWS_MAX)} are shown. Zoom in or filter, or copy the command for all.`}
          </p>
        )}
      </Panel>
    </div>
  );
}

/** `412 attacks`; how many are missing, if any. */
function countText({ matched_attacks, attacks, kept_attacks, complete }: EventList): string {
  const matched = `${plural(matched_attacks, 'attack')}, newest first`;
  if (complete) return matched;
  const missing = attacks - kept_attacks;
  return `${matched}. ${formatCount(missing)} of ${plural(attacks, 'attack')} in this range ${missing === 1 ? 'is' : 'are'} not kept.`;
}

function emptyText({ attacks, complete }: EventList, filters: readonly string[]): string {
  if (attacks > 0 && !complete && filters.length === 0)
    return `None of the ${plural(attacks, 'attack')} in this range is kept.`;
  return filters.length === 0 ? 'No attacks in this range.' : `No attack matches ${filters.join(', ')}.`;
}

const COLUMNS = ['Time', 'Action', 'Category', 'Rule', 'Source', 'Host', 'Request'];

export function AttackTable({ events }: { events: readonly AttackEvent[] }) {
  const { zone, now, go } = useApp();
  return (
    <table class="attacks-list">
      <colgroup>
        {COLUMNS.map((title) => (
          <col key={title} class={title.toLowerCase()} />
        ))}
      </colgroup>
      <thead class="offscreen">
        <tr>
          {COLUMNS.map((title) => (
            <th key={title} scope="col">
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {events.map((event, i) => (
          <tr key={`${event.id} ${event.time} ${i}`}>
            <th scope="row" class="time">
              <button
                class="filter"
                type="button"
                onClick={() => go({ open: { kind: 'attack', value: event.id } })}
              >
                <time>{shortTime(event.time, zone, now())}</time>
                <span class="offscreen">. Open the attack</span>
              </button>
            </th>
            <td class="action">
              <ActionLabel action={event.action} />
            </td>
            <td class="category">
              <span class="key" style={{ '--key': `var(--category-${event.attack})` }}>
                {CATEGORY_NAMES[event.attack]}
              </span>
            </td>
            <td class="rule" title={event.rule && `${event.rule} ${ruleName(event.rule)}`}>
              <code>{event.rule}</code>
            </td>
            <td class="source">
              <code>{event.sip}</code>
            </td>
            <td class="host">{event.host}</td>
            <td class="request" title={event.request_line}>
              <code>{event.request_line ?? event.url}</code>
              {event.count !== undefined && <span class="faint">{` ${formatCount(event.count)} times`}</span>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function ActionLabel({ action }: { action: AttackEvent['action'] }) {
  return action === 'block' ? (
    <StateLabel kind="active" text="Blocked" />
  ) : (
    <StateLabel kind="silent" text="Detected" />
  );
}

/** How long panels above the list may take to load, and change their heights, after a filter was set. */
const SETTLE_MS = 5_000;

/** Scrolls to the list, which is below the panels, and stays there until these have loaded or the user scrolls. */
export function showAttacks(): void {
  const list = document.getElementById(ATTACKS_ID);
  if (list === null) return;
  list.scrollIntoView({ behavior: 'smooth' });
  list.focus({ preventScroll: true });
  const observer = new ResizeObserver(() => list.scrollIntoView());
  observer.observe(document.body);
  const stop = () => observer.disconnect();
  setTimeout(stop, SETTLE_MS);
  for (const input of ['wheel', 'touchstart', 'keydown', 'pointerdown'])
    addEventListener(input, stop, { once: true, passive: true });
}

/**
 * Whether the element has been in the visible part of the page: what nobody sees is not loaded. `isPlaced`: what is above
 * the element has its height.
 */
export function useVisible(box: { current: HTMLElement | null }, isPlaced: boolean): boolean {
  const [isVisible, setVisible] = useState(false);
  useLayoutEffect(() => {
    if (!isPlaced) return;
    const observer = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) setVisible(true);
    });
    if (box.current !== null) observer.observe(box.current);
    return () => observer.disconnect();
  }, [isPlaced]);
  return isVisible;
}
