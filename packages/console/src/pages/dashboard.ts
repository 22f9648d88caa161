/** Requests and attacks at a glance: how many, when, of which category, on which hosts, from where. */
import type { StatisticsQuery } from '@wafstat/client';
import type { App, Page } from '../app.ts';
import { totalsOf } from '../categories.ts';
import { fill, h } from '../dom.ts';
import { formatRange } from '../format.ts';
import { controls } from '../parts/controls.ts';
import { distributionPanel } from '../parts/distribution-panel.ts';
import { figuresRow } from '../parts/figures.ts';
import { failureNotice, loader, message } from '../parts/states.ts';
import { timelinePanel } from '../parts/timeline-panel.ts';
import { topHostsPanel } from '../parts/top-hosts-panel.ts';
import { readTopLists, topPanels } from '../parts/top-panels.ts';
import { total } from '../points.ts';
import { endsNow, previousRange, previousRangeName, resolveRange } from '../time-range.ts';
import { firstRun } from './first-run.ts';

export function dashboardPage(app: App): Page {
  const client = app.api.client(app.project.id);
  const bar = controls(app, true);
  const figures = figuresRow();
  const timeline = timelinePanel(app);
  const distribution = distributionPanel(app);
  const topHosts = topHostsPanel(app);
  const tops = topPanels(app);
  const notice = h('div', { class: 'notice' });
  const panels = h(
    'div',
    { class: 'panels' },
    timeline.element,
    distribution.element,
    topHosts.element,
    tops.element,
  );
  const content = h('div', { class: 'content', 'aria-busy': 'true' }, figures.element, notice, panels);
  const start = h('div', { hidden: true });
  const element = h(
    'div',
    { class: 'page dashboard' },
    h('h1', { class: 'offscreen' }, 'Dashboard'),
    bar.element,
    content,
    start,
  );
  let everShown = false;

  async function read(signal: AbortSignal): Promise<void> {
    const { selectedRange, hosts, category } = app.view();
    const range = resolveRange(selectedRange, app.offsetMs(), app.now());
    const before = previousRange(selectedRange, range);
    const filter = hosts.length === 0 ? {} : { hosts };
    const query = { ...range, ...filter, timezone: app.timezone(), signal };
    // Shown last: a flood makes them slower than all others.
    const topLists = readTopLists(client, {
      ...query,
      timezone: undefined,
      attacks: category === null ? undefined : [category],
    });
    topLists.catch(() => {});
    const [series, { types, categories }, now, past] = await Promise.all([
      client.timeline(query),
      attacksByCategory(query),
      app.api.figures(app.project.id, { ...range, ...filter, signal }),
      app.api.figures(app.project.id, { ...before, ...filter, signal }),
    ]);
    const requests = total(series.requests.map(({ num }) => num));
    // From the response that the categories are from: events can arrive between two queries.
    const attacks = total(categories ? Object.values(types) : series.attacks.map(({ num }) => num));
    const nothing = requests === 0 && attacks === 0;
    if (nothing && hosts.length === 0 && (await client.sources({ signal })).total === 0) return showStart();
    start.hidden = true;
    content.hidden = false;
    // Before drawing, because a hidden panel has no width.
    panels.hidden = nothing;
    bar.element.hidden = false;
    figures.show(
      { requests, attacks, hosts: now.items },
      { requests: total(past.requests), attacks: total(past.attacks), hosts: past.items },
      {
        name: previousRangeName(selectedRange),
        range: formatRange(before.from, before.to, app.offsetMs()),
      },
    );
    timeline.show({ ...series, categories }, range);
    distribution.show(types, range);
    topHosts.show(now.items);
    fill(notice, nothing && message('No data in this range', 'Try a longer range or other hosts.'));
    everShown = true;
    tops.show(await topLists, range);
    content.setAttribute('aria-busy', 'false');
  }

  /** Over time only if the timeline shows it. */
  async function attacksByCategory(query: StatisticsQuery) {
    const { byCategory, category } = app.view();
    if (byCategory || category !== null) {
      const categories = await client.attackTimeline(query);
      return { types: totalsOf(categories), categories };
    }
    return { types: await client.attackTypes({ ...query, timezone: undefined }), categories: null };
  }

  const { load, abort } = loader(app, read, (failure) => {
    // Keeps old numbers, but no skeletons.
    panels.hidden = !everShown;
    fill(notice, failureNotice(failure, load));
    content.setAttribute('aria-busy', 'false');
  });

  function showStart(): void {
    if (!start.hidden) return;
    fill(start, firstRun(app));
    start.hidden = false;
    content.hidden = true;
    bar.element.hidden = true;
  }

  return {
    element,
    title: 'Dashboard',
    show() {
      bar.show();
      content.setAttribute('aria-busy', 'true');
      load();
    },
    refresh() {
      if (endsNow(app.view().selectedRange) && !timeline.isBusy()) load();
    },
    leave() {
      abort();
      timeline.leave();
    },
  };
}
