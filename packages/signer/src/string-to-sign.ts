export const ALGORITHM = 'SDK-HMAC-SHA256';

/** What the secret key signs. `requestHash` is the hex SHA-256 of the canonical request. */
export function stringToSign(date: string, requestHash: string): string {
  return [ALGORITHM, date, requestHash].join('\n');
}

/** The value of the `Authorization` header. */
export function authorization(access: string, signedHeaders: string, signature: string): string {
  return `${ALGORITHM} Access=${access}, SignedHeaders=${signedHeaders}, Signature=${signature}`;
}

/** The value of the `X-Sdk-Date` header, `YYYYMMDDTHHMMSSZ`, of a time in milliseconds since the epoch. */
export function sdkDate(time: number): string {
  return new Date(time).toISOString().replace(/[-:]|\.[0-9]{3}/g, '');
}
