/** What an alert says. Names of hosts, sources and rules come from logs, so attackers write them: every channel escapes them. */
import { CATEGORY_NAMES, ruleName } from '@wafstat/client';
import type { Alert, AlertRule, Delivery, Incident } from '../identity/records.ts';
import { number, plural, printable } from '../printable.ts';
import { ruleFields } from './rules.ts';

export interface MessageContext {
  project: { id: string; name: string };
  /** The URL of the console. Null: messages have no link. */
  publicUrl: string | null;
  /** The ID of the host that the incident names, for the link. */
  hostId?: string | undefined;
}

type Escape = (value: string) => string;
type State = Exclude<Delivery['event'], 'report'>;

/** The key under which a delivery is sent, every time. */
export function deliveryKey({ id }: Pick<Incident, 'id'>, event: Delivery['event']): string {
  return `${id}-${event}`;
}

/** The same bytes each time it is sent. */
export function webhookBody(alert: Alert, incident: Incident, state: State, context: MessageContext): string {
  const { id, since, attacks, total, usual, host, source, category } = incident;
  return JSON.stringify({
    incident: id,
    alert: alert.name,
    project: context.project.name,
    state,
    since,
    until: state === 'open' ? null : incident.until,
    attacks: state === 'open' ? attacks : total,
    usual,
    host,
    source,
    category,
    text: incidentText(alert, incident, state, context.project.name, chatText),
    link: linkOf(alert, incident, state, context),
  });
}

export function incidentMail(alert: Alert, incident: Incident, state: State, context: MessageContext) {
  const { name } = context.project;
  const text = incidentText(alert, incident, state, name, printable);
  const link = linkOf(alert, incident, state, context);
  const what = state === 'open' ? 'Alert' : 'Closed';
  return {
    subject: `[wafstat] ${what}: ${alert.name} (${name})`,
    text: `${text}\n${link ? `\n${link}\n` : ''}`,
  };
}

/** One sentence, such as `shop: 1,240 attacks within 5 minutes since 2026-07-01 16:40 UTC, usually 30; host a.example.` */
function incidentText(
  alert: Alert,
  incident: Incident,
  state: State,
  project: string,
  shown: Escape,
): string {
  const { since, until, attacks, total, usual, host, source, category, rule } = incident;
  const label = `${shown(alert.name)} (project ${shown(project)})`;
  if (state === 'closed') {
    const during = total === null ? '' : `, ${plural(total, 'attack')}`;
    return `${label}: closed. From ${clock(since)} to ${clock(until ?? since)}${during}.`;
  }
  const details = [
    usual !== null && `usually ${number(usual)}`,
    category !== null && `mostly ${shown(categoryName(category))}`,
    host !== null && `on ${shown(host)}`,
    source !== null && alert.rule.kind === 'dropped' && `mostly from the log source ${shown(source)}`,
    source !== null && attacks !== null && `from ${shown(source)}`,
    rule !== null && `rule ${shown(rule)}${ruleName(rule) && ` (${ruleName(rule)})`}`,
  ].filter(Boolean);
  const what = `${whatHappened(alert.rule, incident, shown)} since ${clock(since)}`;
  return `${label}: ${[what, ...details].join(', ')}.`;
}

function whatHappened(rule: AlertRule, { attacks, percent }: Incident, shown: Escape): string {
  const within = 'within_s' in rule ? ` within ${minutes(rule.within_s)}` : '';
  switch (rule.kind) {
    case 'threshold': {
      const kind = [rule.category && shown(rule.category), rule.not_blocked && 'not blocked'].filter(Boolean);
      return `${plural(attacks ?? 0, 'attack')}${kind.length > 0 ? ` (${kind.join(', ')})` : ''}${within}`;
    }
    case 'spike':
      return `unusually many attacks, ${number(attacks ?? 0)} in 5 minutes,`;
    case 'errors':
      return `${percent}% of the responses${within} are server errors,`;
    case 'dropped':
      return `${percent}% of the log lines${within} were dropped,`;
    case 'silent':
      return `no line from the log source ${shown(rule.source)}`;
    case 'report':
      return 'report';
  }
}

/** How a rule reads in lists. */
export function ruleText(rule: AlertRule): string {
  const where = 'host' in rule && rule.host !== undefined ? ` on ${rule.host}` : '';
  switch (rule.kind) {
    case 'threshold': {
      const kind = [rule.category, rule.not_blocked && 'not blocked'].filter(Boolean).join(', ');
      return `${plural(rule.attacks, 'attack')}${kind && ` (${kind})`} within ${minutes(rule.within_s)}${where}`;
    }
    case 'spike':
      return `${rule.category ?? 'attacks'} far above the usual (sensitivity ${rule.sensitivity})${where}`;
    case 'errors':
      return `${rule.percent}% server errors within ${minutes(rule.within_s)}${where}`;
    case 'dropped':
      return `${rule.percent}% of the log lines dropped within ${minutes(rule.within_s)}`;
    case 'silent':
      return `no line from ${rule.source} for ${minutes(rule.for_s)}`;
    case 'report':
      return `weekly report, ${ruleFields(rule).at} ${rule.timezone}`;
  }
}

/**
 * Slack reads `<...>` as a link or a mention, and Teams reads Markdown and HTML. A character reference is text in both; only
 * the odd name that contains these characters looks odd.
 */
function chatText(value: string): string {
  return printable(value).replace(
    /[&<>[\]()*`~|\\]/g,
    (character) => CHAT_ESCAPES[character] ?? `&#${character.charCodeAt(0)};`,
  );
}

const CHAT_ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };

/** Opens the console with what the alert counts, from shortly before the incident. */
function linkOf(
  { rule }: Alert,
  { since, until, category }: Incident,
  state: State,
  context: MessageContext,
): string | null {
  const { project, publicUrl, hostId } = context;
  if (publicUrl === null) return null;
  const windowMs = 1_000 * ('within_s' in rule ? rule.within_s : 3_600);
  const end = state === 'closed' && until !== null ? until : since + windowMs;
  const query = new URLSearchParams({ project: project.id, from: String(since - windowMs), to: String(end) });
  if ('host' in rule && rule.host !== undefined && hostId !== undefined) query.set('host', hostId);
  if ('not_blocked' in rule && rule.not_blocked) query.set('action', 'log');
  if ('category' in rule && rule.category !== undefined && category !== null) query.set('category', category);
  return `${publicUrl}/console/?${query}`;
}

export function categoryName(category: string): string {
  return (CATEGORY_NAMES as Readonly<Record<string, string>>)[category] ?? category;
}

/** `2026-07-01 16:40 UTC` */
export function clock(time: number): string {
  return `${new Date(time).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

function minutes(seconds: number): string {
  return seconds % 3_600 === 0 ? plural(seconds / 3_600, 'hour') : plural(seconds / 60, 'minute');
}
