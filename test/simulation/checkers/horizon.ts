/**
 * The horizon never moves back by itself, and never further than the retention time behind the true time: clocks are wrong
 * for less than the 24 hours after which the service trusts them. What it has passed is not freed within a day.
 */
import { HOUR_MS } from '../scheduler.ts';
import { type Checked, type Checker, CheckFailed, JUMP_MS_MAX } from './checker.ts';

const FREE_MS_MIN = 24 * HOUR_MS - 2 * JUMP_MS_MAX;

export function checkHorizon({ scheduler, retentionMs }: Checked): Checker {
  let before = 0;
  /** When the horizon has passed which time. */
  const moves: { at: number; horizon: number }[] = [];
  return {
    retained({ horizon, freedBefore }, isMovedBack) {
      const { now } = scheduler;
      if (horizon < before && !isMovedBack)
        throw new CheckFailed(`the horizon has moved back by ${before - horizon} ms`);
      if (horizon > now - retentionMs + JUMP_MS_MAX)
        throw new CheckFailed(
          `the horizon is ${Math.round((horizon - now + retentionMs) / HOUR_MS)} hours too late`,
        );
      if (horizon !== before) moves.push({ at: now, horizon });
      before = horizon;
      while ((moves[1]?.at ?? now) <= now - FREE_MS_MIN) moves.shift();
      const [oldest] = moves;
      const isOld = oldest !== undefined && oldest.at <= now - FREE_MS_MIN;
      if (freedBefore > (isOld ? oldest.horizon : 0))
        throw new CheckFailed(`events before ${freedBefore} are freed too early`);
    },
  };
}
