/** Hash and HMAC by Web Crypto: Node.js and browsers both have it, so there is one implementation. */

const utf8 = new TextEncoder();

/** Hex HMAC-SHA256 of the string to sign. */
export async function signature(secret: string, stringToSign: string): Promise<string> {
  const subtle = webCrypto();
  const hmac = { name: 'HMAC', hash: 'SHA-256' };
  const key = await subtle.importKey('raw', utf8.encode(secret), hmac, false, ['sign']);
  return hex(await subtle.sign('HMAC', key, utf8.encode(stringToSign)));
}

export async function sha256Hex(content: string | Uint8Array): Promise<string> {
  // The copy is for bytes in shared memory, which Web Crypto refuses.
  const bytes = typeof content === 'string' ? utf8.encode(content) : new Uint8Array(content);
  return hex(await webCrypto().digest('SHA-256', bytes));
}

function webCrypto() {
  const { subtle } = globalThis.crypto;
  // The types promise it, but a browser leaves it out on pages it does not trust.
  if (!subtle) throw new Error('Web Crypto is missing: browsers offer it on https pages and localhost only.');
  return subtle;
}

function hex(buffer: ArrayBuffer): string {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
