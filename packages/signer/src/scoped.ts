/**
 * The variant of the algorithm with a credential scope, for servers that verify it: date, region and service are one more
 * line of the string to sign, and the key is derived from them. `sign` never uses this variant.
 */
import { ALGORITHM } from './sign.ts';

export interface Scope {
  /** `YYYYMMDD`, the day of `X-Sdk-Date`. */
  date: string;
  /** May be empty. */
  region: string;
  /** May be empty. */
  service: string;
}

/** Passed in, so that the derivation is synchronous on servers that use `node:crypto`. */
export type HmacSha256 = (key: string | Uint8Array, message: string) => Uint8Array;

const TERMINATOR = 'sdk_request';

/** The scope in the string to sign, and after the access key ID in `Credential=`. */
export function scopeLine({ date, region, service }: Scope): string {
  return [date, region, service, TERMINATOR].join('/');
}

export function scopedStringToSign(date: string, scope: Scope, requestHash: string): string {
  return [ALGORITHM, date, scopeLine(scope), requestHash].join('\n');
}

/** The key that signs the scoped string. */
export function scopedKey(secret: string, { date, region, service }: Scope, hmac: HmacSha256): Uint8Array {
  return hmac(hmac(hmac(hmac(`SDK${secret}`, date), region), service), TERMINATOR);
}
