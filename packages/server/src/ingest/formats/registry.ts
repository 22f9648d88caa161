/** All formats, in the order in which they are tried on a line. */
import { access, accessJson } from './access.ts';
import { awsAlb, awsWaf, cloudfrontJson, cloudfrontText } from './aws.ts';
import { azureWaf } from './azure.ts';
import { cloudArmor } from './cloud-armor.ts';
import { cloudflare } from './cloudflare.ts';
import { apacheError, caddyJson, caddyText, nginxError } from './error-logs.ts';
import { events } from './events.ts';
import type { JsonFormat, LogFormat, TextFormat, Trait } from './format.ts';
import { iis } from './iis.ts';
import { asObject, parseJsonLine } from './json.ts';
import { lts } from './lts.ts';
import { corazaJson, modsecurity2Json, modsecurity3Json } from './modsecurity-json.ts';
import { NATIVE_TRAITS } from './modsecurity-native.ts';
import { naxsi } from './naxsi.ts';
import { envoy, envoyText, haproxy, nginxProxyManager, traefik, zoraxy } from './proxies.ts';

/** Except ModSecurity's native audit log, which has multi-line records: see modsecurity-native.ts. */
export const TEXT_FORMATS: readonly TextFormat[] = [
  // First: the client chooses the text in the quotes, which may look like any other format.
  { ...access, recognizes: (line) => line.startsWith('"') },
  // Before the error logs, whose lines begin in the same way.
  zoraxy,
  envoyText,
  caddyText,
  naxsi,
  nginxError,
  apacheError,
  nginxProxyManager,
  awsAlb,
  cloudfrontText,
  iis,
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

interface Nearest {
  name: LogFormat;
  /** Undefined if the line has all traits of the format but cannot be parsed. */
  lacks: string | undefined;
}

/** For `explain`: the format that shares the most traits with a line; undefined if none does. `wanted`: try only this one. */
export function nearestFormat(line: string, wanted: LogFormat | 'auto'): Nearest | undefined {
  const isWanted = ({ name }: { name: LogFormat }) => wanted === 'auto' || name === wanted;
  const [value] = /^[[{]/.test(line) ? parseJsonLine(line).values : [];
  const fields = asObject(value);
  const jsonFormats = JSON_FORMATS.filter(isWanted);
  const textFormats = [...TEXT_FORMATS, NATIVE].filter(isWanted);
  if (fields !== null && jsonFormats.length > 0) return nearest(jsonFormats, fields, wanted);
  if (wanted !== 'auto' && textFormats.length === 0) return { name: wanted, lacks: 'JSON object' };
  // Enough for every trait, and bounds the cost of the regular expressions.
  return nearest(textFormats, line.slice(0, 4_096), wanted);
}

const NATIVE = { name: 'modsecurity-native', traits: NATIVE_TRAITS } as const;

function nearest<T>(
  formats: readonly { name: LogFormat; traits: readonly Trait<T>[] }[],
  value: T,
  wanted: LogFormat | 'auto',
): Nearest | undefined {
  let best: (Nearest & { share: number }) | undefined;
  for (const { name, traits } of formats) {
    const missing = traits.filter(([, test]) => !test(value));
    const share = 1 - missing.length / traits.length;
    const isNearer = share > (best?.share ?? 0) || (wanted !== 'auto' && best === undefined);
    if (isNearer) best = { name, lacks: missing[0]?.[0], share };
  }
  return best;
}
