/**
 * The second variant of the algorithm, which some clients of the API family write: a scope of date, region and
 * service is one more line of the string to sign, and the key is derived from it. `sign` never writes it; a
 * server needs it to verify what those clients send.
 */
import { ALGORITHM } from './string-to-sign.ts';

export interface Scope {
  /** `YYYYMMDD`, the day of `X-Sdk-Date`. */
  date: string;
  /** May be empty, as may the service. */
  region: string;
  service: string;
}

/** A parameter, so that the derivation is synchronous where HMAC is: on a server, with `node:crypto`. */
export type HmacSha256 = (key: string | Uint8Array, message: string) => Uint8Array;

const TERMINATOR = 'sdk_request';

/** The scope as it stands in the string to sign, and behind the access key in `Credential=`. */
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
