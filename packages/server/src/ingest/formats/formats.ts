/** All formats, in the order in which a line is held against them. */
import { access } from './access.ts';
import { accessJson } from './access-json.ts';
import { apacheError } from './apache-error.ts';
import { awsAlb } from './aws-alb.ts';
import { awsWaf } from './aws-waf.ts';
import { azureWaf } from './azure-waf.ts';
import { caddyJson, caddyText } from './caddy.ts';
import { cloudArmor } from './cloud-armor.ts';
import { cloudflare } from './cloudflare.ts';
import { cloudfrontJson, cloudfrontText } from './cloudfront.ts';
import { corazaJson } from './coraza-json.ts';
import { envoy } from './envoy.ts';
import { events } from './events.ts';
import type { JsonFormat, TextFormat } from './format.ts';
import { haproxy } from './haproxy.ts';
import { lts } from './lts.ts';
import { modsecurity2Json } from './modsecurity2-json.ts';
import { modsecurity3Json } from './modsecurity3-json.ts';
import { naxsi } from './naxsi.ts';
import { nginxError } from './nginx-error.ts';
import { nginxProxyManager } from './nginx-proxy-manager.ts';
import { traefik } from './traefik.ts';

/** Beside these there is the native audit log of ModSecurity, whose records are many lines. */
export const TEXT_FORMATS: readonly TextFormat[] = [
  caddyText,
  naxsi,
  nginxError,
  apacheError,
  nginxProxyManager,
  awsAlb,
  cloudfrontText,
  haproxy,
  access,
];

export const JSON_FORMATS: readonly JsonFormat[] = [
  modsecurity3Json,
  corazaJson,
  modsecurity2Json,
  awsWaf,
  lts,
  cloudflare,
  azureWaf,
  cloudArmor,
  cloudfrontJson,
  caddyJson,
  envoy,
  traefik,
  accessJson,
  events,
];
