/** Refused logins in the audit trail: a stranger causes them at any rate, and must not drive out the records of changes. */
import { type Actor, type AuditTrail, newAuditId } from './audit-trail.ts';

/** At once: enough to see what an attack looks like. */
const BURST = 20;
/** Of users that exist and of others each 1,440 lines a day, under 1 MB together: the trail then reaches back two months. */
const REFILL_MS = 60_000;

export interface RefusedLogin {
  /** Null when there is no such user: people type passwords into the wrong field. */
  user: { id: string; name: string } | null;
  from: LoginSource;
  reason: string;
}

/** Where a login comes from. */
export type LoginSource = { address: string } & Pick<Actor, 'request_id'> & {
    via: 'api' | 'console';
    /** What the browser was given when the user signed in before. */
    device?: string;
  };

export function recordLoginRefusals(trail: AuditTrail, now: () => number): (refused: RefusedLogin) => void {
  // Counted separately, so that guesses at invented names do not hide those at real users.
  const budgets = { known: newBudget(now()), unknown: newBudget(now()) };
  return ({ user, from: { via, address, request_id }, reason }) => {
    const budget = user ? budgets.known : budgets.unknown;
    budget.lines = Math.min(BURST, budget.lines + Math.max(0, now() - budget.at) / REFILL_MS);
    budget.at = now();
    if (budget.lines < 1) {
      budget.suppressed++;
      return;
    }
    budget.lines--;
    const { suppressed } = budget;
    budget.suppressed = 0;
    trail.note({
      id: newAuditId(),
      user: user?.name ?? null,
      ...(user ? { user_id: user.id } : {}),
      via,
      address,
      ...(request_id === undefined ? {} : { request_id }),
      action: 'login',
      object: { type: 'user', ...(user ? { id: user.id, name: user.name } : {}) },
      outcome: 'refused',
      reason,
      ...(suppressed > 0 ? { suppressed } : {}),
    });
  };
}

function newBudget(at: number): { lines: number; at: number; suppressed: number } {
  return { lines: BURST, at, suppressed: 0 };
}
