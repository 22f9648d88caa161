/** The side panel: one attack, one value of a list, or a whole list. */
import { ATTACK_TYPES, type AttackEvent, CATEGORY_NAMES, ruleName, ruleUrl } from '@wafstat/client';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { type App, useApp, useProject } from '../app.ts';
import { sumOf, total } from '../counts.ts';
import {
  apiFilter,
  type Filter,
  type FilterField,
  fieldTitle,
  only,
  toggled,
  valueName,
} from '../filters.ts';
import { countryName, formatCount, formatTime, plural, share } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { CopyButton, CopyValue } from '../parts/copy.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { FilterValue } from '../parts/filter-value.tsx';
import { SearchBox } from '../parts/search-box.tsx';
import { Sparkline } from '../parts/sparkline.tsx';
import { isForbidden, QueryState } from '../parts/states.tsx';
import { equalParts } from '../points.ts';
import { quoted } from '../setup-commands.ts';
import type { TimeRange } from '../time-range.ts';
import { useQuery } from '../use-query.ts';
import type { Opened } from '../view.ts';
import { BeforeAfter } from './annotations.tsx';
import { ActionLabel, AttackTable } from './attacks-panel.tsx';
import { KINDS, readTopList, type TopListName, TopRows } from './top-lists.tsx';

const LIST_ROWS_MAX = 1_000;
const TOP_VALUES = 5;
const LATEST_ATTACKS = 5;
const LINE_POINTS = 60;
const DAY_MS = 86_400_000;

interface DrawerProps {
  range: TimeRange;
  /** Of hosts, by ID. */
  names: ReadonlyMap<string, string>;
}

export function Drawer({ range, names }: DrawerProps) {
  const { view, go } = useApp();
  const { open } = view;
  if (open === null) return null;
  const close = () => {
    // A shared link has no earlier view to go back to.
    if (history.state?.within === true) history.back();
    else go({ open: null }, 'replace');
  };
  const { kind, value } = open;
  return (
    <Dialog key={`${kind} ${value}`} class="drawer" title={titleOf(open, names)} close={close}>
      <Button kind="quiet square close" aria-label="Close" title="Close" icon="close" onClick={close} />
      {kind === 'attack' && <Attacks id={value ?? ''} />}
      {kind === 'annotation' && <BeforeAfter id={value ?? ''} />}
      {kind !== 'attack' && kind !== 'annotation' && kind !== 'network' && value !== null && (
        <ValueDetails kind={kind} value={value} range={range} names={names} />
      )}
      {kind !== 'attack' && kind !== 'annotation' && kind !== 'host' && value === null && (
        <WholeList kind={kind} range={range} />
      )}
    </Dialog>
  );
}

function titleOf({ kind, value }: Opened, names: ReadonlyMap<string, string>): string {
  if (kind === 'attack') return 'Attack';
  if (kind === 'annotation') return 'Before and after';
  if (kind === 'host') return `Host ${names.get(value ?? '') ?? value ?? ''}`;
  if (kind === 'network' || value === null) return `All ${KINDS[kind].many}`;
  return `${fieldTitle(kind)} ${valueName(kind, value)}`;
}

/** A client may choose the ID of its request, so several attacks can have the same. */
function Attacks({ id }: { id: string }) {
  const { api } = useApp();
  const project = useProject();
  const query = useQuery(`attack ${project.id} ${id}`, (signal) =>
    api.client(project.id).event(id, { signal }),
  );
  return (
    <>
      <QueryState query={query} />
      {query.data?.items.map((event, i) => (
        <Attack key={`${event.time} ${i}`} event={event} />
      ))}
    </>
  );
}

function Attack({ event }: { event: AttackEvent }) {
  const { view, zone, go } = useApp();
  const project = useProject();
  const { id, sip, rule, rules = rule === undefined ? [] : [{ id: rule }] } = event;
  const curl = `curl -H "X-Auth-Token: $TOKEN" '${location.origin}/v1/${project.id}/waf/event/${encodeURIComponent(id).replaceAll("'", '%27')}'`;
  const value = (field: FilterField, text: string | undefined, opens?: Opened['kind']) =>
    text === undefined ? null : (
      <span class="label">
        <FilterValue field={field} value={text} {...(opens ? { opens } : {})} />
      </span>
    );
  const facts: [title: string, content: ComponentChildren][] = [
    ['Time', formatTime(event.time, zone, true)],
    ['Action', <ActionLabel key="action" action={event.action} />],
    ['Category', value('category', event.attack)],
    ['Source', value('source', sip, 'source')],
    ['Country', value('country', event.region, 'country')],
    [
      'Host',
      event.host_id && (
        <span class="label">
          <button
            class="filter cut"
            type="button"
            title={`Only ${event.host}`}
            onClick={() => go({ hosts: [event.host_id ?? ''], open: null })}
          >
            {event.host}
          </button>
        </span>
      ),
    ],
    ['URL', value('url', event.url, 'url')],
    ['Request', event.request_line && <code class="untrusted">{event.request_line}</code>],
    ['Method', value('method', event.method)],
    ['Response code', value('status', event.status)],
    ['Anomaly score', event.score],
    ['User agent', event.user_agent && <code class="untrusted">{event.user_agent}</code>],
    ['Identical attacks', event.count],
    [
      'ID',
      <CopyValue key="id" text={id}>
        <code>{id}</code>
      </CopyValue>,
    ],
  ];
  return (
    <article>
      <div class="form-end">
        {sip !== undefined && (
          <Button
            kind="primary"
            onClick={() => go({ filters: only(view.filters, 'source', sip), open: null })}
          >
            Only this source
          </Button>
        )}
        {rule !== undefined && (
          <Button
            onClick={() =>
              go({
                filters: toggled(view.filters, { field: 'rule', value: rule, isExcluded: true }),
                open: null,
              })
            }
          >
            Not this rule
          </Button>
        )}
      </div>
      <dl class="facts">
        {facts.map(
          ([title, content]) =>
            content !== null &&
            content !== undefined &&
            content !== '' && (
              <div key={title}>
                <dt>{title}</dt>
                <dd>{content}</dd>
              </div>
            ),
        )}
      </dl>
      {rules.length > 0 && <h3>{plural(rules.length, 'matched rule')}</h3>}
      <ol class="matched-rules">
        {rules.map((matched, i) => (
          <MatchedRule key={`${matched.id} ${i}`} rule={matched} />
        ))}
      </ol>
      <h3>Commands</h3>
      <Command label="The attack with curl" code={curl} />
      <Command
        label="The attack with the command line"
        code={`wafstat event ${quoted(id)} --project ${project.id}`}
      />
    </article>
  );
}

/** Attackers choose variables and values: they are text, and the service has cut them. */
function MatchedRule({
  rule: { id, variable, value, severity },
}: {
  rule: NonNullable<AttackEvent['rules']>[0];
}) {
  const href = ruleUrl(id);
  return (
    <li>
      <span class="label">
        <FilterValue field="rule" value={id} opens="rule">
          <code>{id}</code>
          <span class="meaning">{ruleName(id)}</span>
        </FilterValue>
      </span>
      {href !== null && (
        <a class="definition" href={href} target="_blank" rel="noopener noreferrer">
          Definition
          <span class="offscreen">{` of rule ${id}`}</span>
        </a>
      )}
      {severity !== undefined && <span class="faint">{severity}</span>}
      {(variable !== undefined || value !== undefined) && (
        <code class="untrusted">
          {variable !== undefined && <b>{variable}</b>}
          {value !== undefined && <span>{value}</span>}
        </code>
      )}
    </li>
  );
}

function Command({ label, code }: { label: string; code: string }) {
  return (
    <div class="command">
      <pre tabIndex={0} role="region" aria-label={label}>
        <code>{code}</code>
      </pre>
      <CopyButton text={code} />
    </div>
  );
}

interface ValueDetailsProps extends DrawerProps {
  kind: Exclude<Opened['kind'], 'attack' | 'annotation' | 'network'>;
  value: string;
}

/** Everything that the value did in the range, whatever the other filters. */
function ValueDetails({ kind, value, range, names }: ValueDetailsProps) {
  const app = useApp();
  const { zone, go } = app;
  const project = useProject();
  const filters: Filter[] = kind === 'host' ? [] : [{ field: kind, value, isExcluded: false }];
  const hosts = kind === 'host' ? [value] : [];
  const query = useQuery(JSON.stringify([project.id, kind, value, range]), (signal) =>
    readDetails(app, project.id, range, filters, hosts, signal),
  );
  const { data } = query;
  const name = kind === 'host' ? 'host' : valueName(kind, value);
  if (data === null) return <QueryState query={query} />;
  const counts = sumOf(data.figures.attacks, ATTACK_TYPES);
  const blocked = total(sumOf(data.figures.blocked, ATTACK_TYPES));
  const attacks = total(counts);
  const { classification, rules } = data;
  const seen = [data.first, data.last].map((time) => (time === undefined ? '–' : formatTime(time, zone)));
  return (
    <>
      <div class="form-end">
        <Button kind="primary" onClick={() => go({ filters, hosts, open: null })}>
          {`Everything of this ${kind === 'url' ? 'URL' : kind}`}
        </Button>
        {kind !== 'host' && (
          <Button
            onClick={() =>
              go({
                filters: toggled(app.view.filters, { field: kind, value, isExcluded: true }),
                open: null,
              })
            }
          >
            {`Not this ${kind === 'url' ? 'URL' : kind}`}
          </Button>
        )}
        {kind === 'rule' && ruleUrl(value) !== null && (
          <a class="definition" href={ruleUrl(value) ?? ''} target="_blank" rel="noopener noreferrer">
            {ruleName(value)}: definition
          </a>
        )}
      </div>
      <dl class="facts">
        <div>
          <dt>Attacks</dt>
          <dd>{`${formatCount(attacks)}, ${share(blocked, attacks)} blocked`}</dd>
        </div>
        <div>
          <dt>First seen</dt>
          <dd>{seen[0]}</dd>
        </div>
        <div>
          <dt>Last seen</dt>
          <dd>{seen[1]}</dd>
        </div>
      </dl>
      <figure>
        <Sparkline requests={[]} attacks={counts} />
        <figcaption class="hint">
          <span>{formatTime(range.from, zone)}</span>
          <span>{`Attacks of ${name}`}</span>
          <span>{formatTime(range.to, zone)}</span>
        </figcaption>
      </figure>
      <div class="values">
        <Values title="Categories">
          {classification.attack_type.items.map(({ key, num }) => (
            <Value key={key} count={num} most={classification.attack_type.items[0]?.num ?? 1}>
              <FilterValue field="category" value={key}>
                {CATEGORY_NAMES[key]}
              </FilterValue>
            </Value>
          ))}
        </Values>
        {kind !== 'host' && (
          <Values title="Hosts">
            {classification.domain.items.map(({ key, num }) => {
              const [id] = [...names].find(([, hostname]) => hostname === key) ?? [];
              return (
                <Value key={key} count={num} most={classification.domain.items[0]?.num ?? 1}>
                  <button
                    class="filter cut"
                    type="button"
                    disabled={id === undefined}
                    onClick={() => id !== undefined && go({ filters, hosts: [id], open: null })}
                  >
                    {key}
                  </button>
                </Value>
              );
            })}
          </Values>
        )}
        {(['source', 'url', 'rule', 'country'] as const)
          .filter((other) => other !== kind)
          .map((other) => {
            const { ip: source, url, geo: country } = classification;
            const list = { source, url, rule: rules, country }[other];
            return list.items.length === 0 ? null : (
              <section key={other}>
                <h3>{plural(list.total, KINDS[other].one, KINDS[other].many)}</h3>
                <TopRows kind={other} list={list} isLoading={false} />
              </section>
            );
          })}
      </div>
      {data.latest.length > 0 && (
        <>
          <h3>Latest attacks</h3>
          <AttackTable events={data.latest} />
        </>
      )}
    </>
  );
}

async function readDetails(
  { api, session, now }: App,
  project: string,
  range: TimeRange,
  filters: readonly Filter[],
  hosts: readonly string[],
  signal: AbortSignal,
) {
  const client = api.client(project);
  const selection = { ...apiFilter(filters), ...(hosts.length === 0 ? {} : { hosts }), signal };
  const to = now() + DAY_MS;
  const keptRange = { from: Math.max(0, to - (session.top_lists_ms ?? 30 * DAY_MS) - DAY_MS), to };
  const common = { ...selection, top: TOP_VALUES };
  const [figures, classification, rules, oldest, newest, latest] = await Promise.all([
    api.figures(project, { edges: equalParts(range, LINE_POINTS), hosts, filters, signal }),
    client.classification({ ...range, ...common }),
    client.topRules({ ...range, ...common }),
    ifAllowed(client.events({ ...keptRange, ...selection, limit: 1, sortDirection: 'asc' })),
    ifAllowed(client.events({ ...keptRange, ...selection, limit: 1 })),
    ifAllowed(client.events({ ...range, ...selection, limit: LATEST_ATTACKS })),
  ]);
  const [first, last] = [oldest, newest].map((list) => list?.items[0]?.time);
  return { figures, classification, rules, first, last, latest: latest?.items ?? [] };
}

/** Null: only administrators of the project can list attacks (`--events-role`). */
function ifAllowed<T>(call: Promise<T>): Promise<T | null> {
  return call.catch((failure: unknown) => {
    if (isForbidden(failure)) return null;
    throw failure;
  });
}

function Values({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h3>{title}</h3>
      <table class="ranking">
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

function Value({ count, most, children }: { count: number; most: number; children: ComponentChildren }) {
  return (
    <tr>
      <th scope="row">
        <span class="bar" style={{ width: `${(count / most) * 100}%` }} />
        <span class="label">{children}</span>
      </th>
      <td class="number">{formatCount(count)}</td>
    </tr>
  );
}

/** All values of a list, with a search. */
function WholeList({ kind, range }: { kind: TopListName; range: TimeRange }) {
  const { api, view } = useApp();
  const project = useProject();
  const [search, setSearch] = useState('');
  const { hosts, filters } = view;
  const query = useQuery(JSON.stringify([project.id, kind, range, hosts, filters]), (signal) =>
    readTopList(api.client(project.id), kind, {
      ...range,
      ...apiFilter(filters),
      ...(hosts.length === 0 ? {} : { hosts }),
      top: LIST_ROWS_MAX,
      signal,
    }),
  );
  const { data } = query;
  const wanted = search.trim().toLowerCase();
  const items = data?.items.filter(({ key, host = '', name = '' }) =>
    `${host}${key} ${name} ${kind === 'rule' ? ruleName(key) : kind === 'country' ? countryName(key) : ''}`
      .toLowerCase()
      .includes(wanted),
  );
  return (
    <>
      <SearchBox name={`Find a ${KINDS[kind].one}`} value={search} search={setSearch} />
      <QueryState query={query} />
      {data !== null && items !== undefined && (
        <>
          <p class="hint" role="status">
            {`${formatCount(items.length)} of ${formatCount(data.total)}${data.total > data.items.length ? `; the first ${formatCount(data.items.length)} can be searched` : ''}`}
          </p>
          <TopRows kind={kind} list={{ ...data, items }} isLoading={false} />
        </>
      )}
    </>
  );
}
