/** Alerts of a project, and the history of their incidents. */
import { INCIDENTS_KEPT } from '../alerts/incidents.ts';
import { ruleText } from '../alerts/messages.ts';
import { parseAlert, RULE_KINDS, ruleFields } from '../alerts/rules.ts';
import { malformed } from '../errors.ts';
import { CATEGORIES } from '../event.ts';
import type { RequestIdentity } from '../identity/identity.ts';
import type { Alert, Incident } from '../identity/records.ts';
import { DAY_MS } from '../statistics/grid.ts';
import { administer } from './auth/actor.ts';
import { parseJson } from './auth/json-body.ts';
import { checkNames, parsePage, queryOf } from './query.ts';
import {
  array,
  integer,
  noContent,
  notCached,
  object,
  ok,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
} from './route.ts';

const PATH = '/v1/:project_id/waf/alerts';
const NEEDS_ADMIN = 'Needs the role `admin`.';
const nullable = (type: string, description: string) => ({ type: [type, 'null'], description });

const RULE = partialObject(
  {
    kind: string('Kind of the rule.', { enum: RULE_KINDS }),
    attacks: integer('`threshold`: number of attacks.'),
    within_s: integer('`threshold`, `errors`, `dropped`: length of the window in seconds, whole minutes.'),
    category: string('`threshold`, `spike`: count only this category.', { enum: CATEGORIES }),
    host: string('`threshold`, `spike`, `errors`: count only this host, by name.'),
    not_blocked: { type: 'boolean', description: '`threshold`: count only attacks that were not blocked.' },
    sensitivity: { type: 'number', description: '`spike`: deviations above the usual. Default: 3.5.' },
    percent: integer('`errors`, `dropped`: share in percent.'),
    source: string('`silent`: name of the log source.'),
    for_s: integer('`silent`: how long it may send nothing, in seconds.'),
    at: string('`report`: day and time. Default: `Mon 08:00`.'),
    timezone: string('`report`: time zone of `at`. Default: `+00:00`.'),
  },
  { required: ['kind'] },
);
const ALERT = object({
  id: string('Alert ID.'),
  name: string('Name, unique in the project.'),
  rule: RULE,
  text: string('The rule in words.'),
  channel: string('How messages are sent.', { enum: ['webhook', 'mail'] }),
  target: string('Mail address, or the origin of the webhook: its path is often a secret.'),
  created: integer('Milliseconds since the epoch.'),
  open_since: nullable('integer', 'Start of the open incident. Null: there is none.'),
});
const DELIVERY = partialObject(
  {
    event: string('What is sent.', { enum: ['open', 'closed', 'report'] }),
    status: string('State of the delivery.', { enum: ['waiting', 'sending', 'delivered', 'failed'] }),
    attempts: integer('How often it was sent.'),
    recorded: integer('When it was recorded. Retries end a day later.'),
    at: integer('Time of the next attempt, or when the delivery ended.'),
    error: string('Why the last attempt failed.'),
  },
  { required: ['event', 'status', 'attempts', 'recorded', 'at'] },
);
const INCIDENT = object({
  id: string('Incident ID. With `-open` or `-closed`, the `Idempotency-Key` of its messages.'),
  alert_id: string('Alert ID.'),
  alert: string('Name of the alert.'),
  since: integer('Start.'),
  until: nullable('integer', 'End. Null: the incident is open.'),
  attacks: nullable('integer', 'Attacks in the window when it opened.'),
  total: nullable('integer', 'Attacks during the incident, once it is closed.'),
  usual: nullable('integer', 'Usual number of attacks in such a window.'),
  percent: nullable('integer', 'Share in percent, for `errors` and `dropped`.'),
  host: nullable('string', 'Host with the most attacks.'),
  source: nullable(
    'string',
    'Client address with the most attacks, or the log source that is silent or has dropped lines.',
  ),
  category: nullable('string', 'Category with the most attacks.'),
  rule: nullable('string', 'Rule that matched the most attacks.'),
  deliveries: array(DELIVERY),
});

const PAGE_PARAMETERS = {
  offset: integer('Number of items to skip.'),
  limit: integer('Maximum number of items, 1 to 1,000. Default: 1,000.'),
};
const DAY_MINUTES = 1_440;

export function alertRoutes({ administration, alerts }: RequestIdentity, allowPrivate: boolean): Route[] {
  const item = (alert: Alert) => ({
    ...publicFields(alert),
    open_since: alerts.incidentsOf(alert.id).find(({ until }) => until === null)?.since ?? null,
  });
  return [
    {
      method: 'GET',
      url: PATH,
      allow: 'reader',
      schema: {
        operationId: 'alerts',
        tags: ['alerts'],
        summary: 'List the alerts of the project by name',
        params: PROJECT_PATH,
        response: ok('The alerts.', object({ total: integer('Number of alerts.'), items: array(ALERT) })),
      },
      async handler(request) {
        checkNames(queryOf(request), []);
        const items = administration.alertsOf(pathParameter(request, 'project_id')).map(item);
        return { total: items.length, items };
      },
    },
    notCached({
      method: 'POST',
      url: PATH,
      allow: 'admin',
      schema: {
        operationId: 'addAlert',
        tags: ['alerts'],
        summary: 'Add an alert',
        description: `Only this response has the secret that signs the messages of a webhook. ${NEEDS_ADMIN}`,
        params: PROJECT_PATH,
        body: partialObject(
          {
            name: string('Name, unique in the project.'),
            rule: RULE,
            webhook: string('URL that gets messages as JSON.'),
            mail: string('Mail address. Set this or `webhook`.'),
          },
          { required: ['name', 'rule'] },
        ),
        response: ok('The alert.', {
          ...ALERT,
          properties: { ...ALERT.properties, secret: string('Key of the HMAC in `X-Wafstat-Signature`.') },
        }),
      },
      async handler(request) {
        const given = parsed(parseJson(request.body), allowPrivate);
        const project = pathParameter(request, 'project_id');
        const { alert, secret } = await administer(administration, request, (admin) =>
          admin.addAlert(project, given),
        );
        return { ...item(alert), ...(secret !== undefined && { secret }) };
      },
    }),
    {
      method: 'DELETE',
      url: `${PATH}/:alert_id`,
      allow: 'admin',
      schema: {
        operationId: 'deleteAlert',
        tags: ['alerts'],
        summary: 'Delete an alert and its incidents',
        description: NEEDS_ADMIN,
        params: object({ ...PROJECT_PATH.properties, alert_id: string('Alert ID') }),
        response: noContent('Deleted.'),
      },
      async handler(request, reply) {
        const project = pathParameter(request, 'project_id');
        const id = pathParameter(request, 'alert_id');
        await administer(administration, request, (admin) => admin.removeAlert(project, id));
        return reply.code(204).send();
      },
    },
    {
      method: 'GET',
      url: `${PATH}/incidents`,
      allow: 'reader',
      schema: {
        operationId: 'incidents',
        tags: ['alerts'],
        summary: `List the incidents of the project, newest first: the last ${INCIDENTS_KEPT} of each alert`,
        params: PROJECT_PATH,
        querystring: partialObject(PAGE_PARAMETERS),
        response: ok(
          'One page of incidents.',
          object({ total: integer('Number of incidents on all pages.'), items: array(INCIDENT) }),
        ),
      },
      async handler(request) {
        const query = queryOf(request);
        checkNames(query, ['offset', 'limit']);
        const { skip, size } = parsePage(query);
        const all = administration
          .alertsOf(pathParameter(request, 'project_id'))
          .flatMap((alert) => alerts.incidentsOf(alert.id).map((incident) => incidentItem(alert, incident)))
          .sort((a, b) => b.since - a.since || (a.id < b.id ? -1 : 1));
        return { total: all.length, items: all.slice(skip, skip + size) };
      },
    },
  ];
}

/** The alerts of the API family are thresholds. */
export function vendorAlertRoute(alertsOf: (project: string) => readonly Alert[]): Route {
  return {
    method: 'GET',
    url: '/v2/:project_id/waf/alerts',
    allow: 'reader',
    schema: {
      operationId: 'vendorAlerts',
      tags: ['alerts'],
      summary: 'List the alerts of the kind `threshold` in the form of the API family',
      params: PROJECT_PATH,
      response: ok(
        'The alerts.',
        object({
          total: integer('Number of alerts.'),
          items: array(
            object({
              id: string('Alert ID.'),
              name: string('Name.'),
              enabled: { type: 'boolean', description: 'Always true.' },
              sendfreq: integer('Length of the window in minutes.'),
              times: integer('Number of attacks.'),
              threat: array(string('Category.')),
              notice_class: string('Always `threat_alert_notice`.'),
              update_time: integer('When the alert was added, in milliseconds since the epoch.'),
            }),
          ),
        }),
      ),
    },
    async handler(request) {
      const items = alertsOf(pathParameter(request, 'project_id')).flatMap(({ id, name, rule, created }) =>
        rule.kind === 'threshold'
          ? [
              {
                id,
                name,
                enabled: true,
                sendfreq: rule.within_s / 60,
                times: rule.attacks,
                threat: rule.category === undefined ? CATEGORIES : [rule.category],
                notice_class: 'threat_alert_notice',
                update_time: created,
              },
            ]
          : [],
      );
      return { total: items.length, items };
    },
  };
}

const WEEK_MS = 7 * DAY_MS;
const QUARTERS = ['morning', 'noon', 'afternoon', 'evening'];
const WEEKLY = string('Always `weekly_report`.');
const PERIOD_FIELDS = {
  report_id: string('Report ID.'),
  subscription_id: string('ID of the alert that sends it.'),
  stat_period: object({
    begin_time: integer('Start of the week, in milliseconds since the epoch.'),
    end_time: integer('End of the week; it is not part of it.'),
  }),
};
const SENT = object({
  ...PERIOD_FIELDS,
  report_name: string('Name of the alert.'),
  report_category: WEEKLY,
  sending_time: integer('When the mail was accepted, in milliseconds since the epoch.'),
});
const SUBSCRIPTION = object({
  subscription_id: string('ID of the alert.'),
  report_name: string('Name of the alert.'),
  report_category: WEEKLY,
  sending_period: string('Quarter of the day.', { enum: QUARTERS }),
  is_report_created: { type: 'boolean', description: 'Whether one has been recorded.' },
});

/** The reports of the API family are alerts of the kind `report`. */
export function vendorReportRoutes(
  alertsOf: (project: string) => readonly Alert[],
  incidentsOf: (alert: string) => readonly Incident[],
): Route[] {
  const reportsOf = (project: string) =>
    alertsOf(project)
      .flatMap((alert) =>
        alert.rule.kind === 'report' ? incidentsOf(alert.id).map((incident) => ({ alert, incident })) : [],
      )
      .sort((a, b) => b.incident.since - a.incident.since);
  const periodOf = ({ alert, incident: { id, since } }: ReturnType<typeof reportsOf>[number]) => ({
    report_id: id,
    subscription_id: alert.id,
    stat_period: { begin_time: since - WEEK_MS, end_time: since },
  });
  const list = (
    name: string,
    operationId: string,
    summary: string,
    item: Readonly<Record<string, unknown>>,
    read: (project: string) => object[],
  ): Route => ({
    method: 'GET',
    url: `/v1/:project_id/waf/security-report/${name}`,
    allow: 'reader',
    schema: {
      operationId,
      tags: ['alerts'],
      summary,
      params: PROJECT_PATH,
      querystring: partialObject(PAGE_PARAMETERS),
      response: ok('One page.', object({ total: integer('Number on all pages.'), items: array(item) })),
    },
    async handler(request) {
      const { skip, size } = parsePage(queryOf(request));
      const all = read(pathParameter(request, 'project_id'));
      return { total: all.length, items: all.slice(skip, skip + size) };
    },
  });
  return [
    list(
      'subscriptions',
      'reportSubscriptions',
      'List the weekly reports in the form of the API family',
      SUBSCRIPTION,
      (project) =>
        alertsOf(project).flatMap(({ id, name, rule }) =>
          rule.kind === 'report'
            ? [
                {
                  subscription_id: id,
                  report_name: name,
                  report_category: 'weekly_report',
                  sending_period: QUARTERS[Math.floor((rule.minute % DAY_MINUTES) / (DAY_MINUTES / 4))],
                  is_report_created: incidentsOf(id).length > 0,
                },
              ]
            : [],
        ),
    ),
    list(
      'history-periods',
      'reportPeriods',
      'List the weeks of reports, newest first',
      object(PERIOD_FIELDS),
      (project) => reportsOf(project).map(periodOf),
    ),
    list('sending-records', 'reportsSent', 'List the reports that were sent, newest first', SENT, (project) =>
      reportsOf(project).flatMap((report) =>
        report.incident.deliveries
          .filter(({ status }) => status === 'delivered')
          .map(({ at }) => ({
            ...periodOf(report),
            report_name: report.alert.name,
            report_category: 'weekly_report',
            sending_time: at,
          })),
      ),
    ),
  ];
}

function parsed(body: unknown, allowPrivate: boolean) {
  try {
    return parseAlert(body, allowPrivate);
  } catch (error) {
    throw malformed((error as Error).message);
  }
}

function publicFields({ id, name, rule, channel, target, created }: Alert) {
  return { id, name, rule: ruleFields(rule), text: ruleText(rule), channel, target, created };
}

function incidentItem({ name }: Alert, incident: Incident) {
  return { ...incident, alert: name };
}
