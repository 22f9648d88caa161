/** Evaluates the alerts of all projects every ten seconds, and delivers their incidents. */
import type { AlertStore, Identity } from '../identity/identity.ts';
import type { Alert, Incident } from '../identity/records.ts';
import { DAY_MS } from '../statistics/grid.ts';
import type { Store } from '../store/store.ts';
import { zoneOf } from '../zone.ts';
import { type ChannelSettings, NO_MAIL_SERVER, reasonOf, sendMail, sendWebhook } from './channels.ts';
import { Evaluation, Samples } from './evaluate.ts';
import { type DueDelivery, Incidents, LeaseLost } from './incidents.ts';
import { deliveryKey, incidentMail, type MessageContext, webhookBody } from './messages.ts';

const EVALUATE_EVERY_MS = 10_000;
/** Each takes up to 10 s: a receiver that hangs must not delay the others much. */
const DELIVERIES_AT_ONCE = 16;
const DELIVERIES_OF_PROJECT = 4;
/** Deliveries that take longer at shutdown are sent again after the restart, with the same key. */
const STOP_MS_MAX = 3_000;
const WEEK_MINUTES = 7 * 1_440;
const MINUTE_MS = 60_000;
/** 1970-01-01 was a Thursday: weeks begin on Monday. */
const MONDAY_MINUTES = 3 * 1_440;

interface AlertLog {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
}

export interface AlertSettings extends ChannelSettings {
  publicUrl: string | null;
}

interface Dependencies {
  store: Store;
  identity: Pick<Identity, 'alerts' | 'lookup'>;
  settings: AlertSettings;
  now: () => number;
  log: AlertLog;
}

export function startAlerts(dependencies: Dependencies): { stop(): Promise<void> } {
  const evaluator = new Evaluator(dependencies);
  let running = evaluator.tick();
  let isRunning = true;
  running.finally(() => {
    isRunning = false;
  });
  const timer = setInterval(() => {
    // A slow store must not queue up evaluations.
    if (isRunning) return;
    isRunning = true;
    running = evaluator.tick().finally(() => {
      isRunning = false;
    });
  }, EVALUATE_EVERY_MS).unref();
  return {
    async stop() {
      clearInterval(timer);
      await running;
      await evaluator.stop();
    },
  };
}

export class Evaluator {
  readonly #dependencies: Dependencies;
  readonly #records: AlertStore;
  readonly #incidents: Incidents;
  readonly #samples = new Samples();
  /** By their key. */
  readonly #deliveries = new Map<string, { project: string; done: Promise<void> }>();
  #lastReport: Promise<unknown> = Promise.resolve();
  readonly #stopping = new AbortController();
  #isStopping = false;
  #lastTrouble: string | null = null;

  constructor(dependencies: Dependencies) {
    this.#dependencies = dependencies;
    this.#records = dependencies.identity.alerts;
    this.#incidents = new Incidents(this.#records, dependencies.now);
  }

  /** One evaluation. Never rejects. */
  async tick(): Promise<void> {
    try {
      if (this.#records.alerts().length === 0) return;
      if (!(await this.#incidents.lead())) return;
      const evaluation = new Evaluation(this.#dependencies.store, this.#dependencies.now(), this.#samples);
      let trouble: string | null = null;
      for (const alert of this.#records.alerts()) {
        // All of them together may take longer than the lease.
        if (!(await this.#incidents.lead())) return;
        await this.#evaluate(alert, evaluation).catch((error) => {
          if (error instanceof LeaseLost) throw error;
          trouble = reasonOf(error);
        });
      }
      this.#deliverDue();
      this.#report(trouble);
    } catch (error) {
      if (!(error instanceof LeaseLost)) this.#report(reasonOf(error));
    }
  }

  /** Logs a trouble once: the store may be away for hours. */
  #report(trouble: string | null): void {
    if (trouble !== null && trouble !== this.#lastTrouble)
      this.#dependencies.log.warn({ reason: trouble }, 'alerts cannot be evaluated; retrying every 10 s');
    this.#lastTrouble = trouble;
  }

  /** Waits for deliveries, and lets another process evaluate. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    const timer = setTimeout(() => this.#stopping.abort(), STOP_MS_MAX);
    await this.idle();
    clearTimeout(timer);
    await this.#incidents.release().catch(() => {});
  }

  /** Resolves when no delivery is being made. */
  async idle(): Promise<void> {
    while (this.#deliveries.size > 0)
      await Promise.all(Array.from(this.#deliveries.values(), ({ done }) => done));
  }

  async #evaluate(alert: Alert, evaluation: Evaluation): Promise<void> {
    const { project_id, rule, created } = alert;
    const { now } = evaluation;
    // Disabled projects get no log lines.
    if (this.#dependencies.identity.lookup.project(project_id)?.enabled !== true) return;
    if (rule.kind === 'report') {
      const at = lastTime(rule, now);
      if (at > created && now - at < DAY_MS) await this.#incidents.addReport(alert, at);
      return;
    }
    const incident = this.#incidents.openOf(alert);
    const { isOpen, until = now, facts } = await evaluation.verdict(project_id, rule, incident !== null);
    if (isOpen && incident === null) {
      const opened = await this.#incidents.open(alert, await facts());
      if (opened) this.#log(alert, opened, 'incident opened');
    } else if (!isOpen && incident !== null) {
      // Late events can change which bursts there were.
      const end = Math.max(until, incident.since);
      await this.#incidents.close(incident, end, await this.#total(alert, incident, end));
      this.#log(alert, incident, 'incident closed');
    }
  }

  async #total({ project_id: project, rule }: Alert, { since, attacks }: Incident, now: number) {
    if (attacks === null || (rule.kind !== 'threshold' && rule.kind !== 'spike')) return null;
    // The window in which the threshold was reached belongs to the incident.
    const from = rule.kind === 'threshold' ? since - 1_000 * rule.within_s : since;
    const { counts } = await new Evaluation(this.#dependencies.store, now, this.#samples).count(
      project,
      rule,
      [from, now],
    );
    return counts[0] ?? 0;
  }

  #deliverDue(): void {
    for (const due of this.#incidents.due()) this.#deliver(due);
  }

  #deliver(due: DueDelivery): void {
    const key = deliveryKey(due.incident, due.event);
    if (this.#deliveries.has(key) || this.#deliveries.size >= DELIVERIES_AT_ONCE) return;
    const project = due.alert.project_id;
    const own = Array.from(this.#deliveries.values()).filter((delivery) => delivery.project === project);
    if (own.length >= DELIVERIES_OF_PROJECT) return;
    const done = this.#deliverNow(due)
      .catch((error) => {
        this.#log(due.alert, due.incident, 'delivery not recorded; retrying', reasonOf(error));
        return false;
      })
      .then((isRecorded) => {
        this.#deliveries.delete(key);
        if (isRecorded && !this.#isStopping) this.#deliverDue();
      });
    this.#deliveries.set(key, { project, done });
  }

  /** Resolves to whether the outcome has been recorded. */
  async #deliverNow(due: DueDelivery): Promise<boolean> {
    const { alert, incident, event } = due;
    const project = this.#dependencies.identity.lookup.project(alert.project_id);
    if (project === undefined || !(await this.#incidents.claim(due))) return false;
    const error = await this.#send(due, project).then(
      () => null,
      (reason) => reasonOf(reason),
    );
    // What was interrupted may have arrived. Its outcome stays unknown, and it is sent again with the same key.
    if (error !== null && this.#stopping.signal.aborted) return false;
    const delivery = await this.#incidents.finish(due, error);
    if (delivery?.status === 'delivered') this.#log(alert, incident, `${event} delivered`);
    else if (delivery?.status === 'failed')
      this.#log(alert, incident, `${event} given up after a day`, delivery.error);
    else if (delivery?.attempts === 1)
      this.#log(alert, incident, `${event} not delivered; retrying`, delivery.error);
    return true;
  }

  async #send({ alert, incident, event }: DueDelivery, project: MessageContext['project']): Promise<void> {
    const { store, settings } = this.#dependencies;
    const key = deliveryKey(incident, event);
    if (event === 'report') {
      if (settings.smtp === null) throw new Error(NO_MAIL_SERVER);
      const { reportMail } = await import('./report.ts');
      // One at a time: a report reads everything of a week, and all of them are due on Monday.
      const made = this.#lastReport.then(() => reportMail(this.#dependencies, project, incident.since));
      this.#lastReport = made.catch(() => {});
      const mail = await made;
      return sendMail({ to: alert.target, ...mail }, key, settings.smtp);
    }
    const hostId = (await store.hosts(project.id)).find(({ hostname }) => hostname === incident.host)?.id;
    await sendMessage(
      this.#records,
      { alert, incident, event },
      { project, publicUrl: settings.publicUrl, hostId },
      settings,
      this.#stopping.signal,
    );
  }

  #log({ name, project_id }: Alert, { id }: Incident, message: string, reason?: string): void {
    const details = {
      alert: name,
      project: project_id,
      incident: id,
      ...(reason !== undefined && { reason }),
    };
    if (reason === undefined) this.#dependencies.log.info(details, message);
    else this.#dependencies.log.warn(details, message);
  }
}

/** Sends a message about an incident once. */
export async function sendMessage(
  records: Pick<AlertStore, 'secretsOf'>,
  { alert, incident, event }: { alert: Alert; incident: Incident; event: 'open' | 'closed' },
  context: MessageContext,
  settings: ChannelSettings,
  stop?: AbortSignal,
): Promise<void> {
  const key = deliveryKey(incident, event);
  if (alert.channel === 'mail')
    return sendMail(
      { to: alert.target, ...incidentMail(alert, incident, event, context) },
      key,
      settings.smtp,
    );
  const body = webhookBody(alert, incident, event, context);
  return sendWebhook(records.secretsOf(alert), body, key, settings, stop);
}

/** The last time of a weekly schedule, at or before `now`. */
export function lastTime({ minute, timezone }: { minute: number; timezone: string }, now: number): number {
  const zone = zoneOf(timezone);
  const localMinute = Math.floor((now + zone.offsetAt(now)) / MINUTE_MS) + MONDAY_MINUTES;
  const week = Math.floor((localMinute - minute) / WEEK_MINUTES);
  const local = (week * WEEK_MINUTES + minute - MONDAY_MINUTES) * MINUTE_MS;
  // The offset may have changed since.
  const time = local - zone.offsetAt(local - zone.offsetAt(now));
  return time <= now ? time : time - WEEK_MINUTES * MINUTE_MS;
}
