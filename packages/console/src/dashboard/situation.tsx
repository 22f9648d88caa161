/** The first line of the dashboard: what is going on, and the bursts of the range. */
import type { Burst, Situation as Content } from '@wafstat/client';
import { CATEGORY_NAMES } from '@wafstat/client';
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import type { Filter } from '../filters.ts';
import { duration, formatCount, formatRange, share, shortTime } from '../format.ts';
import { PageLink } from '../parts/frame.tsx';
import { sentence as failureText } from '../parts/states.tsx';
import type { Query } from '../use-query.ts';
import type { View } from '../view.ts';

export function Situation({ query: { data, failure, isLoading } }: { query: Query<Content> }) {
  if (data === null)
    return (
      <p class="situation" role="status">
        {failure === null ? <span class="skeleton" /> : failureText(failure)}
      </p>
    );
  return (
    <div class={`situation ${data.state} ${isLoading || failure !== null ? 'stale' : ''}`}>
      <p role="status">{linkedSentence(data)}</p>
      <Bursts bursts={data.bursts.toReversed()} />
    </div>
  );
}

/** Zooms to the burst, and filters by what most of its attacks have in common. */
export function burstView({ from, to, category, host_id, source }: Burst): Partial<View> {
  const filter = (field: Filter['field'], value: string | null): Filter[] =>
    value === null ? [] : [{ field, value, isExcluded: false }];
  return {
    selectedRange: { from, to },
    hosts: host_id === null ? [] : [host_id],
    filters: [...filter('category', category), ...filter('source', source)],
  };
}

/** `Since 16:40: HTTP flood on shop.example.com from 192.0.2.58`: each noun shows what it names. */
function linkedSentence({ state, sentence, bursts }: Content): ComponentChildren {
  const burst = bursts.at(-1);
  const found = (pattern: RegExp) => pattern.exec(sentence)?.[1] ?? '';
  if (state === 'no_data') return withLinks(sentence, [[found(/ from (source .+)\.$/), { page: 'sources' }]]);
  if (state === 'quiet' || burst === undefined) {
    const lastHour: Partial<View> = { selectedRange: { preset: '1hour' } };
    return withLinks(sentence, [[found(/([\d,]+ attacks? in the last hour)/), lastHour]]);
  }
  const { selectedRange, hosts, filters = [] } = burstView(burst);
  const by = (field: Filter['field']) => filters.filter((filter) => filter.field === field);
  return withLinks(sentence, [
    [found(/^Since (.+?): /), burstView(burst)],
    [found(/^Since .+?: (.+?)(?: on | from |, )/), { selectedRange, filters: by('category') }],
    [burst.host ?? '', { selectedRange, hosts }],
    [burst.source ?? '', { selectedRange, filters: by('source') }],
  ] as [string, Partial<View>][]);
}

/** The texts, in the order of the sentence, as links. */
function withLinks(
  sentence: string,
  links: readonly [text: string, to: Partial<View>][],
): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const [text, to] of links) {
    const start = sentence.indexOf(text, end);
    if (text === '' || start === -1) continue;
    parts.push(
      sentence.slice(end, start),
      <PageLink key={text} class="noun" to={to}>
        {text}
      </PageLink>,
    );
    end = start + text.length;
  }
  return [...parts, sentence.slice(end)];
}

/** Newest first, in one line that scrolls. */
function Bursts({ bursts }: { bursts: readonly Burst[] }) {
  const { zone, now } = useApp();
  if (bursts.length === 0) return null;
  return (
    <ul class="bursts" aria-label="Bursts">
      {bursts.map((burst) => (
        <li key={burst.from}>
          <PageLink
            class="burst"
            to={burstView(burst)}
            title={`Zoom to ${formatRange(burst.from, burst.to, zone, now())} and filter`}
          >
            <b>{shortTime(burst.from, zone, now()).slice(0, -3)}</b>
            <span>{burst.open ? 'now' : duration(burst.to - burst.from)}</span>
            {burst.category !== null && (
              <span class="key" style={{ '--key': `var(--category-${burst.category})` }}>
                {CATEGORY_NAMES[burst.category]}
              </span>
            )}
            {burst.host !== null && <span>{burst.host}</span>}
            {burst.source !== null && <code>{burst.source}</code>}
            <span>
              {`${formatCount(burst.attacks)} attacks${burst.times_usual === null ? '' : `, ${formatCount(burst.times_usual)}×`}`}
            </span>
            <span>{`${share(burst.blocked, burst.attacks)} blocked`}</span>
          </PageLink>
        </li>
      ))}
    </ul>
  );
}
