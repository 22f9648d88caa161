/** Refused logins in the audit trail: a stranger causes them at any rate, and must not drive out the records of changes. */
import { type Actor, type AuditTrail, newAuditId } from './audit-trail.ts';

/** At once: enough to see what an attack looks like. */
const BURST = 20;
/** 2,880 lines a day, under 1 MB: the trail then still reaches back two months. */
const REFILL_MS = 30_000;

export interface RefusedLogin {
  /** Null when there is no such user: people type passwords into the wrong field. */
  user: { id: string; name: string } | null;
  from: LoginSource;
  reason: string;
}

/** Where a login comes from. */
export type LoginSource = { address: string } & Pick<Actor, 'request_id'> & { via: 'api' | 'console' };

export function recordLoginRefusals(trail: AuditTrail, now: () => number): (refused: RefusedLogin) => void {
  let tokens = BURST;
  let refilledAt = now();
  let suppressed = 0;
  return ({ user, from, reason }) => {
    const elapsedMs = now() - refilledAt;
    // A clock that was set back fills the bucket too: else nothing would be recorded until it catches up.
    tokens = Math.min(BURST, tokens + (elapsedMs < 0 ? 1 : elapsedMs / REFILL_MS));
    refilledAt = now();
    if (tokens < 1) {
      suppressed++;
      return;
    }
    tokens--;
    trail.note({
      id: newAuditId(),
      user: user?.name ?? null,
      ...(user ? { user_id: user.id } : {}),
      ...from,
      action: 'login',
      object: { type: 'user', ...(user ? { id: user.id, name: user.name } : {}) },
      outcome: 'refused',
      reason,
      ...(suppressed > 0 ? { suppressed } : {}),
    });
    suppressed = 0;
  };
}
