/** All formats, in the order in which a line is held against them. */
import { access } from './access.ts';
import { accessJson } from './access-json.ts';
import { apacheError } from './apache-error.ts';
import { awsWaf } from './aws-waf.ts';
import { caddyJson, caddyText } from './caddy.ts';
import { corazaJson } from './coraza-json.ts';
import { events } from './events.ts';
import type { JsonFormat, TextFormat } from './format.ts';
import { lts } from './lts.ts';
import { modsecurity2Json } from './modsecurity2-json.ts';
import { modsecurity3Json } from './modsecurity3-json.ts';
import { nginxError } from './nginx-error.ts';
import { nginxProxyManager } from './nginx-proxy-manager.ts';

/** Beside these there is the native audit log of ModSecurity, whose records are many lines. */
export const TEXT_FORMATS: readonly TextFormat[] = [
  caddyText,
  nginxError,
  apacheError,
  nginxProxyManager,
  access,
];

export const JSON_FORMATS: readonly JsonFormat[] = [
  modsecurity3Json,
  corazaJson,
  modsecurity2Json,
  awsWaf,
  lts,
  caddyJson,
  accessJson,
  events,
];
