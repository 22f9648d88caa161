/** `alert` and `report`. */
import { randomBytes } from 'node:crypto';
import { sendMessage } from '../alerts/alerts.ts';
import { reasonOf, sendMail } from '../alerts/channels.ts';
import { NO_FACTS } from '../alerts/incidents.ts';
import { clock, ruleText } from '../alerts/messages.ts';
import { canReplay, type ReplayedIncident, replay } from '../alerts/replay.ts';
import { createReport, reportMail } from '../alerts/report.ts';
import { reportPage } from '../alerts/report-page.ts';
import { parseAlert, ruleFields } from '../alerts/rules.ts';
import { ALERT_OPTIONS, LOCATION_OPTIONS, SERVER_OPTIONS } from '../config.ts';
import { CATEGORIES } from '../event.ts';
import type { Alert, Incident } from '../identity/records.ts';
import { plural } from '../printable.ts';
import { SENSITIVITY } from '../statistics/bursts.ts';
import { UTC } from '../zone.ts';
import { alertSettings } from './alert-settings.ts';
import { givenTime } from './client/range.ts';
import {
  command,
  printLine,
  printList,
  printResult,
  printText,
  subcommand,
  UserError,
  warn,
} from './command.ts';
import { withIdentity, withInstallation } from './installation.ts';
import {
  duration,
  flag,
  integer,
  JSON_OUTPUT,
  oneOf,
  option,
  PROJECT,
  required,
  type Source,
  text,
  timestamp,
  type Values,
} from './options.ts';
import { confirm, confirmationProblems, YES } from './prompt.ts';

const OPTIONS = { ...LOCATION_OPTIONS, project: required(PROJECT) };
const WINDOW = duration('mh', '1m', '24h', '5m or 1h');

const RULE_OPTIONS = {
  attacks: option('--attacks <n>', 'alert on this many attacks within --within', integer(1, 1_000_000_000)),
  spike: option('--spike', 'alert on far more attacks than usual at this time of the day', flag),
  errors: option(
    '--errors <percent>',
    'alert on this share of server errors within --within, like 5%',
    percent,
  ),
  silent: option('--silent <source>', 'alert if a log source sends nothing for --for', text),
  dropped: option(
    '--dropped <percent>',
    'alert on this share of dropped log lines within --within, like 10%',
    percent,
  ),
  report: option('--report <weekly>', 'send a report at the time of --at', oneOf('weekly')),
};
const DETAIL_OPTIONS = {
  within: option('--within <time>', 'length of the window [default: 5m]', WINDOW),
  for: option('--for <time>', 'how long a source may be silent [default: 15m]', WINDOW),
  category: option('--category <name>', 'count only attacks of this category', oneOf(...CATEGORIES)),
  host: option('--host <name>', 'count only attacks on this host, or its errors', text),
  notBlocked: option('--not-blocked', 'count only attacks that the log does not report as blocked', flag),
  sensitivity: option(
    '--sensitivity <z>',
    `how many deviations above the usual are a spike [default: ${SENSITIVITY}]`,
    Number,
  ),
  at: option('--at <time>', "day and time of a report, like 'Mon 08:00' [default: Mon 08:00]", text),
  timezone: option('--timezone <zone>', 'time zone of --at, like Europe/Berlin [default: +00:00]', text),
};
type DetailName = keyof typeof DETAIL_OPTIONS;

/** The options that each kind of alert accepts. */
const DETAILS: Readonly<Record<keyof typeof RULE_OPTIONS, readonly DetailName[]>> = {
  attacks: ['within', 'category', 'host', 'notBlocked'],
  spike: ['sensitivity', 'category', 'host'],
  errors: ['within', 'host'],
  silent: ['for'],
  dropped: ['within'],
  report: ['at', 'timezone'],
};
/** Of a spike, which has no limit, in a test message. */
const EXAMPLE_ATTACKS = 1_000;
const KINDS = Object.keys(RULE_OPTIONS) as (keyof typeof RULE_OPTIONS)[];

type RuleValues = Partial<Values<typeof RULE_OPTIONS & typeof DETAIL_OPTIONS>>;

const addAlert = subcommand(
  'add <name>',
  'add an alert; the secret that signs its messages is shown only once',
  {
    examples: [
      'wafstat alert add flood --data ./data --project shop --spike --webhook https://hooks.example.com/x',
      'wafstat alert add sqli --data ./data --project shop --attacks 100 --within 5m --category sqli --mail ops@example.com',
      "wafstat alert add week --data ./data --project shop --report weekly --at 'Mon 08:00' --mail ops@example.com",
    ],
    options: {
      ...OPTIONS,
      ...RULE_OPTIONS,
      ...DETAIL_OPTIONS,
      webhook: option(
        '--webhook <url>',
        'where to send messages (visible in `ps`; prefer WAFSTAT_WEBHOOK)',
        text,
        {
          env: 'WAFSTAT_WEBHOOK',
        },
      ),
      mail: option('--mail <address>', 'where to send mail', text),
      alertAllowPrivate: ALERT_OPTIONS.alertAllowPrivate,
      json: JSON_OUTPUT,
    },
    check: (values, source) => ruleProblems(values, source),
    run: ({ project, webhook, mail, alertAllowPrivate = false, json, ...values }, [name = ''], io) =>
      withInstallation(values, io, async ({ identity: { administration }, store }) => {
        const { id } = administration.projectNamed(project);
        const fields = { name, rule: ruleOf(values), ...(mail === undefined ? { webhook } : { mail }) };
        const { alert, secret } = await administration.addAlert(id, parsed(fields, alertAllowPrivate));
        const { silent } = values;
        const host = 'host' in alert.rule ? alert.rule.host : undefined;
        if (host !== undefined && !(await store.hosts(id)).some(({ hostname }) => hostname === host))
          warn(io, `no log has named the host ${host} yet: the alert is for later ones`);
        if (silent !== undefined && !(await store.sources(id)).some((source) => source.name === silent))
          warn(io, `there is no log source ${silent} yet: the alert waits for its first lines`);
        const result = { ...shown(alert), ...(secret !== undefined && { secret }) };
        printResult(io, json, result, `alert ${name} has the ID ${alert.id}: ${ruleText(alert.rule)}`);
        if (!json && secret !== undefined)
          printLine(io.stdout, `secret of its signature  ${secret}   (shown only once)`);
        return 0;
      }),
  },
);

const listAlerts = subcommand('list', 'list the alerts of a project, and whether they are open', {
  options: { ...OPTIONS, json: JSON_OUTPUT },
  run: ({ project, json, ...location }, _operands, io) =>
    withIdentity(location, io, async ({ administration, alerts }) => {
      const found = administration.alertsOf(administration.projectNamed(project).id);
      const texts = new Map(found.map(({ id, rule }) => [id, ruleText(rule)]));
      const all = found.map((alert) => ({ ...shown(alert), ...stateOf(alerts.incidentsOf(alert.id)) }));
      return printList(io, json, all, ({ id, name, target, open_since, failed }) => [
        id,
        name,
        texts.get(id) ?? '',
        target,
        open_since === null ? '' : `open since ${clock(open_since)}`,
        failed === null ? '' : `not delivered: ${failed}`,
      ]);
    }),
});

const testAlert = subcommand('test <alert>', 'send a test message of an alert now, by ID or name', {
  options: { ...OPTIONS, ...ALERT_OPTIONS, publicUrl: SERVER_OPTIONS.publicUrl },
  run: ({ project, ...values }, [name = ''], io) =>
    withInstallation(values, io, async ({ identity, store }) => {
      const found = identity.administration.projectNamed(project);
      const alert = identity.administration.alertNamed(found.id, name);
      const settings = alertSettings(values, io);
      const id = `test-${randomBytes(12).toString('hex')}`;
      const named = { ...alert, name: `Test of ${alert.name}` };
      const incident = { ...exampleOf(alert.rule), id, alert_id: alert.id, since: io.now() };
      const context = { project: found, publicUrl: settings.publicUrl };
      const send = async () => {
        if (alert.rule.kind !== 'report')
          return sendMessage(identity.alerts, { alert: named, incident, event: 'open' }, context, settings);
        const mail = await reportMail({ store, identity }, found, io.now());
        return sendMail({ to: alert.target, ...mail, subject: `Test of ${mail.subject}` }, id, settings.smtp);
      };
      await send().catch((error) => {
        throw new UserError(`the test message was not delivered: ${reasonOf(error)}`);
      });
      printText(io.stdout, `sent a test message to ${alert.target}`);
      return 0;
    }),
});

/** What an incident would say that has just reached its limit. */
function exampleOf(rule: Alert['rule']): Omit<Incident, 'id' | 'alert_id' | 'since'> {
  const none = { ...NO_FACTS, until: null, total: null, deliveries: [] };
  if ('percent' in rule) return { ...none, percent: rule.percent };
  if (rule.kind === 'silent') return { ...none, source: rule.source };
  if (rule.kind === 'report') return none;
  const attacks = rule.kind === 'threshold' ? rule.attacks : EXAMPLE_ATTACKS;
  return { ...none, attacks, host: rule.host ?? 'test.example.com', category: rule.category ?? null };
}

const deleteAlert = subcommand('delete <alert>', 'delete an alert, by ID or name, and its incidents', {
  options: { ...OPTIONS, yes: YES },
  check: confirmationProblems,
  run: ({ project, yes, ...location }, [given = ''], io) =>
    withIdentity(location, io, async ({ administration }) => {
      const { id: projectId } = administration.projectNamed(project);
      const { id, name } = administration.alertNamed(projectId, given);
      await confirm(io, yes, name, `This deletes the alert ${name}, and its incidents.`);
      await administration.removeAlert(projectId, id);
      return 0;
    }),
});

const replayAlerts = subcommand(
  'replay [alert]',
  'evaluate the alerts of a project, or one of them, over stored history, and list the incidents; sends nothing',
  {
    options: {
      ...OPTIONS,
      from: required(
        option('--from <time>', 'start of the history, like yesterday or 2026-07-01', givenTime),
      ),
      to: option('--to <time>', 'end of the history [default: now]', givenTime),
      json: JSON_OUTPUT,
    },
    run: ({ project, from: givenFrom, to: givenTo, json, ...location }, [name], io) =>
      withInstallation(location, io, async ({ identity: { administration }, store }) => {
        const from = givenFrom.resolve(UTC, io.now()).from;
        const to = givenTo?.resolve(UTC, io.now()).to ?? io.now();
        if (from >= to) throw new UserError('--from must be before --to');
        const { id } = administration.projectNamed(project);
        const alerts =
          name === undefined ? administration.alertsOf(id) : [administration.alertNamed(id, name)];
        const incidents: ({ alert: string } & Omit<ReplayedIncident, 'most'> & ReturnType<typeof mostOf>)[] =
          [];
        for (const alert of alerts) {
          if (canReplay(alert.rule)) {
            const found = await replay(store, id, alert.rule, { from, to });
            const { name: alertName, rule } = alert;
            for (const { most, ...times } of found)
              incidents.push({ alert: alertName, ...times, ...mostOf(rule, most) });
          } else
            warn(io, `${alert.name} is left out: only thresholds, spikes and server errors can be replayed`);
        }
        incidents.sort((a, b) => a.since - b.since);
        return printList(io, json, incidents, ({ alert, since, until, attacks, percent }) => [
          alert,
          clock(since),
          until === null ? 'open at the end' : clock(until),
          attacks === null ? `up to ${percent}% server errors` : `up to ${plural(attacks, 'attack')}`,
        ]);
      }),
  },
);

function mostOf({ kind }: Alert['rule'], most: number) {
  return kind === 'errors' ? { attacks: null, percent: Math.round(most) } : { attacks: most, percent: null };
}

export const alertCommands = [addAlert, listAlerts, testAlert, deleteAlert, replayAlerts];

export const reportCommand = command({
  examples: ['wafstat report --data ./data --project shop --last 7d > report.html'],
  options: {
    ...OPTIONS,
    last: option(
      '--last <time>',
      'length of the report, for example 7d or 24h',
      duration('dh', '1h', '366d', '7d or 24h'),
      {
        default: '7d',
      },
    ),
    to: option('--to <time>', 'end of the report [default: now]', timestamp),
  },
  run: ({ project, last, to: given, ...location }, _operands, io) =>
    withInstallation(location, io, async ({ identity, store }) => {
      const to = given ?? io.now();
      const found = identity.administration.projectNamed(project);
      io.stdout.write(reportPage(await createReport({ store, identity }, found, { from: to - last, to })));
      return 0;
    }),
});

function parsed(fields: object, allowPrivate: boolean) {
  try {
    return parseAlert(fields, allowPrivate);
  } catch (error) {
    throw new UserError((error as Error).message);
  }
}

function ruleProblems(
  values: RuleValues & { webhook?: string | undefined; mail?: string | undefined },
  source: Source<typeof RULE_OPTIONS>,
): string[] {
  // Also those with an invalid value, about which there is another message.
  const kinds = KINDS.filter((name) => source(name) !== undefined);
  const flags = KINDS.map((name) => `--${name}`).join(', ');
  const problems = kinds.length === 1 ? [] : [`choose one of ${flags}`];
  if ((values.webhook === undefined) === (values.mail === undefined))
    problems.push('choose one of --webhook (or WAFSTAT_WEBHOOK) and --mail');
  const [kind] = kinds;
  if (kind === undefined || kinds.length > 1) return problems;
  const unused = (Object.keys(DETAIL_OPTIONS) as DetailName[]).filter(
    (name) => values[name] !== undefined && !DETAILS[kind].includes(name),
  );
  for (const name of unused)
    problems.push(`${DETAIL_OPTIONS[name].flags.split(' ', 1)[0]} does not apply to --${kind}`);
  return problems;
}

/** The rule in the form of the API. */
function ruleOf(values: RuleValues): object {
  const { attacks, spike, errors, silent, dropped, category, host, notBlocked, sensitivity } = values;
  const within_s = (values.within ?? 300_000) / 1_000;
  const selected = { ...(category !== undefined && { category }), ...(host !== undefined && { host }) };
  if (attacks !== undefined)
    return { kind: 'threshold', attacks, within_s, ...selected, ...(notBlocked && { not_blocked: true }) };
  if (spike) return { kind: 'spike', ...(sensitivity !== undefined && { sensitivity }), ...selected };
  if (errors !== undefined) return { kind: 'errors', percent: errors, within_s, ...selected };
  if (dropped !== undefined) return { kind: 'dropped', percent: dropped, within_s };
  if (silent !== undefined) return { kind: 'silent', source: silent, for_s: (values.for ?? 900_000) / 1_000 };
  const { at, timezone } = values;
  return { kind: 'report', ...(at !== undefined && { at }), ...(timezone !== undefined && { timezone }) };
}

function percent(value: string): number {
  const number = /^\d{1,3}%?$/.test(value) ? Number.parseInt(value, 10) : 0;
  if (number < 1 || number > 100) throw new Error('must be a share from 1% to 100%');
  return number;
}

/** Without the secrets. */
function shown({ sealed: _, rule, ...alert }: Alert) {
  return { ...alert, rule: ruleFields(rule) };
}

/** Whether an alert is open, and why its last delivery failed. */
function stateOf(incidents: readonly Incident[]): { open_since: number | null; failed: string | null } {
  const [last] = [...incidents].sort((a, b) => b.since - a.since);
  return {
    open_since: incidents.find(({ until }) => until === null)?.since ?? null,
    failed: last?.deliveries.findLast(({ error }) => error !== undefined)?.error ?? null,
  };
}
