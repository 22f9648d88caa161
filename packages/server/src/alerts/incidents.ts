/**
 * Incidents and their deliveries in the identity store. Every step is one transaction, so a process can be killed at any time:
 * another one continues where it stopped. Only the process with the lease makes steps.
 */
import { randomBytes } from 'node:crypto';
import type { AlertStore } from '../identity/identity.ts';
import type { IdentityWriter } from '../identity/identity-store.ts';
import type { Alert, Delivery, Incident } from '../identity/records.ts';

const LEASE = 'alerts';
/** After `kill -9`, another process takes over when this has passed. */
const LEASE_MS = 30_000;
/** Renewed every other evaluation: each renewal is a commit. */
const RENEW_MS = 15_000;
/** All records are in the memory of each process: with 1,000 alerts, these are at most 50 MB. */
export const INCIDENTS_KEPT = 100;
/** Twice the time limit of a delivery. Afterwards, the process that sent it has been killed, and it is sent again. */
const CLAIM_MS = 20_000;
const RETRY_MS = 10_000;
const RETRY_MS_MAX = 3_600_000;
/** A receiver that is down for longer gets no old messages when it is back. */
const GIVE_UP_MS = 86_400_000;

/** What is known when an incident opens. */
export type Facts = Pick<
  Incident,
  'since' | 'attacks' | 'usual' | 'percent' | 'host' | 'source' | 'category' | 'rule'
>;

export interface DueDelivery {
  alert: Alert;
  incident: Incident;
  event: Delivery['event'];
}

export class Incidents {
  readonly #store: AlertStore;
  readonly #now: () => number;
  readonly #owner = randomBytes(16).toString('hex');

  constructor(store: AlertStore, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /** Whether this process evaluates. */
  async lead(): Promise<boolean> {
    const lease = this.#lease();
    const isOwn = lease?.owner === this.#owner;
    if (lease !== null && !isOwn) return false;
    if (isOwn && lease.until - this.#now() > RENEW_MS) return true;
    return this.#store.change((write) => {
      const current = this.#lease();
      if (current !== null && current.owner !== this.#owner) return false;
      write.putLease(LEASE, { owner: this.#owner, until: this.#now() + LEASE_MS });
      return true;
    });
  }

  /** Lets another process continue at once. */
  async release(): Promise<void> {
    if (this.#lease()?.owner === this.#owner)
      await this.#step((write) => write.putLease(LEASE, { owner: '', until: 0 }));
  }

  /** The incident of an alert that is not closed. */
  openOf(alert: Alert): Incident | null {
    return this.#store.incidentsOf(alert.id).find(({ until }) => until === null) ?? null;
  }

  /** Null if there is one already, or the alert has been deleted. */
  async open(alert: Alert, facts: Facts): Promise<Incident | null> {
    return this.#step((write) =>
      this.openOf(alert) === null ? this.#add(write, alert, { ...facts, until: null }, 'open') : null,
    );
  }

  async close({ id }: Incident, until: number, total: number | null): Promise<void> {
    await this.#step((write) => {
      const incident = this.#store.get('incident', id);
      if (incident === undefined || incident.until !== null) return;
      const deliveries = [...incident.deliveries, newDelivery('closed', this.#now())];
      write.putIncident({ ...incident, until: Math.max(until, incident.since), total, deliveries });
    });
  }

  /** A report for the week that ends at a time; null if it has been recorded before. */
  async addReport(alert: Alert, at: number): Promise<Incident | null> {
    const facts = { ...NO_FACTS, since: at, until: at };
    return this.#step((write) =>
      this.#store.incidentsOf(alert.id).some(({ since }) => since >= at)
        ? null
        : this.#add(write, alert, facts, 'report'),
    );
  }

  /** The first delivery of each incident that has not ended, if it is time to send it. */
  due(): DueDelivery[] {
    const now = this.#now();
    return this.#store.alerts().flatMap((alert) =>
      this.#store.incidentsOf(alert.id).flatMap((incident) => {
        const next = incident.deliveries.find(({ status }) => status === 'waiting' || status === 'sending');
        return next !== undefined && next.at <= now ? [{ alert, incident, event: next.event }] : [];
      }),
    );
  }

  /** Records that it is sent now. False if another process does so. */
  async claim({ incident, event }: DueDelivery): Promise<boolean> {
    const now = this.#now();
    return (
      (await this.#update(incident.id, event, (delivery) =>
        delivery.at > now
          ? null
          : { ...delivery, status: 'sending', attempts: delivery.attempts + 1, at: now + CLAIM_MS },
      )) !== null
    );
  }

  /** Records the outcome. `error` is null if it was delivered. Resolves to the new state. */
  async finish({ incident, event }: DueDelivery, error: string | null): Promise<Delivery | null> {
    const now = this.#now();
    return this.#update(incident.id, event, ({ attempts, recorded }) => {
      const sent = { event, attempts, recorded };
      if (error === null) return { ...sent, status: 'delivered', at: now };
      if (now - recorded >= GIVE_UP_MS) return { ...sent, status: 'failed', at: now, error };
      const retryMs = Math.min(RETRY_MS * 2 ** (attempts - 1), RETRY_MS_MAX);
      return { ...sent, status: 'waiting', at: now + retryMs, error };
    });
  }

  #add(
    write: IdentityWriter,
    alert: Alert,
    facts: Facts & Pick<Incident, 'until'>,
    event: Delivery['event'],
  ): Incident | null {
    if (this.#store.get('alert', alert.id) === undefined) return null;
    const incident: Incident = {
      id: randomBytes(16).toString('hex'),
      alert_id: alert.id,
      total: null,
      ...facts,
      deliveries: [newDelivery(event, this.#now())],
    };
    // The oldest are deleted, first those without a delivery to make.
    const others = this.#store
      .incidentsOf(alert.id)
      .sort((a, b) => Number(isDone(b)) - Number(isDone(a)) || a.since - b.since);
    for (const old of others.slice(0, Math.max(0, others.length + 1 - INCIDENTS_KEPT)))
      write.removeIncident(old);
    write.putIncident(incident);
    return incident;
  }

  /** Null if the delivery has ended, or `change` returns null. */
  async #update(
    id: string,
    event: Delivery['event'],
    change: (delivery: Delivery) => Delivery | null,
  ): Promise<Delivery | null> {
    return this.#store.change((write) => {
      const incident = this.#store.get('incident', id);
      const delivery = incident?.deliveries.find((one) => one.event === event);
      if (incident === undefined || delivery === undefined) return null;
      if (delivery.status === 'delivered' || delivery.status === 'failed') return null;
      const changed = change(delivery);
      if (changed === null) return null;
      const deliveries = incident.deliveries.map((one) => (one === delivery ? changed : one));
      write.putIncident({ ...incident, deliveries });
      return changed;
    });
  }

  /** Throws if another process has taken over: what this one has evaluated may be old. */
  #step<T>(action: (write: IdentityWriter) => T): Promise<T> {
    return this.#store.change((write) => {
      if (this.#lease()?.owner !== this.#owner)
        throw new LeaseLost('another process evaluates the alerts now');
      return action(write);
    });
  }

  /** Null if nobody has it. */
  #lease() {
    const lease = this.#store.get('lease', LEASE);
    const now = this.#now();
    // One that ends later than any is from a time when the clock was ahead.
    return lease === undefined || lease.until <= now || lease.until > now + 2 * LEASE_MS ? null : lease;
  }
}

export class LeaseLost extends Error {}

export const NO_FACTS: Omit<Facts, 'since'> = {
  attacks: null,
  usual: null,
  percent: null,
  host: null,
  source: null,
  category: null,
  rule: null,
};

function newDelivery(event: Delivery['event'], now: number): Delivery {
  return { event, status: 'waiting', attempts: 0, recorded: now, at: now };
}

function isDone({ until, deliveries }: Incident): boolean {
  return until !== null && deliveries.every(({ status }) => status === 'delivered' || status === 'failed');
}
