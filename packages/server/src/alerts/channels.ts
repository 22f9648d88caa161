/** Sends a message once: to a webhook, or by mail. Rejects with an Error whose message is safe to log and to show. */
import { createHmac } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { isLoopback } from '../loopback.ts';
import { printable } from '../printable.ts';
import { checkLiteral, publicLookup } from './addresses.ts';

/** How long a receiver may take, from the name lookup until the response. */
const SEND_MS_MAX = 10_000;
/** Messages have about a kilobyte. */
const BODY_BYTES_MAX = 16_384;
const ERROR_LENGTH_MAX = 300;

export interface ChannelSettings {
  /** Whether webhooks may be on private addresses. */
  allowPrivate: boolean;
  /** Null: no mail can be sent. */
  smtp: SmtpSettings | null;
}

export interface SmtpSettings {
  host: string;
  port: number;
  /** TLS from the start (smtps). Otherwise STARTTLS, which only a server on this machine may lack. */
  secure: boolean;
  user: string | null;
  password: string;
  from: string;
}

export interface Mail {
  to: string;
  subject: string;
  text: string;
  attachment?: { filename: string; content: string };
}

/** Redirects are not followed: they could lead to an address that the owner of the alert did not choose. */
export async function sendWebhook(
  { url, secret }: { url: string; secret: string },
  body: string,
  key: string,
  { allowPrivate }: Pick<ChannelSettings, 'allowPrivate'>,
  stop?: AbortSignal,
): Promise<void> {
  const bytes = Buffer.from(body);
  if (bytes.length > BODY_BYTES_MAX) throw new Error(`the message exceeds ${BODY_BYTES_MAX} bytes`);
  const target = new URL(url);
  if (!allowPrivate) checkLiteral(target.hostname.replace(/^\[(.*)\]$/, '$1'));
  const timeout = AbortSignal.timeout(SEND_MS_MAX);
  const options: https.RequestOptions = {
    method: 'POST',
    // Without an agent, no connection is reused: its address was checked for another name.
    agent: false,
    signal: stop ? AbortSignal.any([timeout, stop]) : timeout,
    headers: {
      'Content-Type': 'application/json',
      'Content-Length': bytes.length,
      'User-Agent': 'wafstat',
      'Idempotency-Key': key,
      'X-Wafstat-Signature': `sha256=${createHmac('sha256', secret).update(bytes).digest('hex')}`,
    },
    ...(allowPrivate ? {} : { lookup: publicLookup }),
  };
  const { request } = target.protocol === 'https:' ? https : http;
  const status = await new Promise<number>((resolve, reject) => {
    const sent = request(target, options, (response) => {
      resolve(response.statusCode ?? 0);
      response.destroy();
    });
    sent.on('error', (error) => reject(timeout.aborted ? new Error('no response within 10 s') : error));
    // For example after a switch of protocols, for which there is no response event.
    sent.on('close', () => reject(new Error('the receiver closed the connection without a response')));
    sent.end(bytes);
  });
  if (status >= 200 && status < 300) return;
  const hint = status >= 300 && status < 400 ? ': redirects are not followed' : '';
  throw new Error(`the receiver responded with status ${status}${hint}`);
}

export const NO_MAIL_SERVER =
  'there is no mail server: set --smtp-url and --mail-from of the service, and of `alert test`';

/** `key` also becomes the Message-ID, by which mail servers recognize copies. */
export async function sendMail(mail: Mail, key: string, smtp: SmtpSettings | null): Promise<void> {
  if (smtp === null) throw new Error(NO_MAIL_SERVER);
  const { host, port, secure, user, password, from } = smtp;
  // Loaded on demand: most installations send no mail.
  const { createTransport } = await import('nodemailer');
  const isLocal = isLoopback(host);
  const transport = createTransport({
    host,
    port,
    secure,
    requireTLS: !secure && !isLocal,
    // The certificate of a mail server on this machine is rarely that of its name.
    tls: { minVersion: 'TLSv1.2', rejectUnauthorized: !isLocal },
    ...(user === null ? {} : { auth: { user, pass: password } }),
    connectionTimeout: SEND_MS_MAX,
    greetingTimeout: SEND_MS_MAX,
    socketTimeout: SEND_MS_MAX,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  const { to, subject, text, attachment } = mail;
  try {
    await transport.sendMail({
      from: { name: 'wafstat', address: from },
      to: { name: '', address: to },
      subject: printable(subject),
      text,
      messageId: `<${key}@${from.slice(from.indexOf('@') + 1)}>`,
      headers: { 'Idempotency-Key': key, 'Auto-Submitted': 'auto-generated' },
      ...(attachment && { attachments: [{ ...attachment, contentType: 'text/html; charset=utf-8' }] }),
    });
  } finally {
    transport.close();
  }
}

/** The reason in a record and in the log. */
export function reasonOf(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  return printable(message || code || 'unknown error').slice(0, ERROR_LENGTH_MAX);
}
