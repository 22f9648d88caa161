/** How alerts are sent, from the options of the service. */
import { readFileSync } from 'node:fs';
import type { AlertSettings } from '../alerts/alerts.ts';
import type { ALERT_OPTIONS } from '../config.ts';
import type { Io } from './command.ts';
import type { Values } from './options.ts';

/** Not an option, because `ps` shows options to everyone. */
const SMTP_PASSWORD_VARIABLE = 'WAFSTAT_SMTP_PASSWORD';

export function alertSettings(
  values: Values<typeof ALERT_OPTIONS> & { publicUrl?: string | undefined },
  { env }: Pick<Io, 'env'>,
): AlertSettings {
  const { alertAllowPrivate = false, smtpUrl, smtpPasswordFile, mailFrom, publicUrl = null } = values;
  const password =
    smtpPasswordFile === undefined
      ? (env[SMTP_PASSWORD_VARIABLE] ?? '')
      : (readFileSync(smtpPasswordFile, 'utf8').split(/\r?\n/, 1)[0] ?? '');
  const smtp = smtpUrl && mailFrom !== undefined ? { ...smtpUrl, password, from: mailFrom } : null;
  return { allowPrivate: alertAllowPrivate, smtp, publicUrl };
}
