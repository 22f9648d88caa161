/**
 * A browser that a user signed in with before. It tells the user from an attacker behind the same address, so that
 * guesses of the one do not delay the other. It grants no access: the password is still required.
 */
import { randomUUID } from 'node:crypto';
import type { User } from './records.ts';
import { signedText } from './signed-text.ts';

export const DEVICE_VALID_MS = 90 * 86_400_000;

interface Device {
  id: string;
  user_id: string;
  /** The user's `token_epoch` at the time: a changed password ends it. */
  epoch: number;
  issued_at: number;
}

export interface Devices {
  issue(user: User, now: number): string;
  /** The ID of the device if it is one of this user; null for anything else. */
  read(text: string, user: User, now: number): string | null;
}

export function createDevices(key: Buffer): Devices {
  const signed = signedText<Device>(key);
  return {
    issue: (user, now) =>
      signed.write({ id: randomUUID(), user_id: user.id, epoch: user.token_epoch, issued_at: now }),
    read(text, user, now) {
      const device = signed.read(text);
      if (device === null || device.user_id !== user.id || device.epoch !== user.token_epoch) return null;
      return Math.abs(now - device.issued_at) < DEVICE_VALID_MS ? device.id : null;
    },
  };
}
