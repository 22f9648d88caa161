/** What a log format is: a pure function from text to what it says, which can be counted, or the reason why not. */
import type { AttackDetails, Category, DropReason } from '../../event.ts';
import type { Classification, Decision, Rule } from '../categories/classify.ts';
import { asObject, type JsonObject } from './json-line.ts';
import type { LogClock } from './log-clock.ts';
import type { LocalZone } from './log-time.ts';
import type { PatternFields } from './pattern.ts';

/** As on the command line and in summaries. */
export const LOG_FORMATS = [
  'access',
  'access-json',
  'nginx-proxy-manager',
  'modsecurity3-json',
  'modsecurity2-json',
  'modsecurity-native',
  'nginx-error',
  'apache-error',
  'caddy',
  'coraza-json',
  'lts',
  'aws-waf',
  'aws-alb',
  'cloudfront',
  'cloudflare',
  'azure-waf',
  'cloud-armor',
  'envoy',
  'traefik',
  'haproxy',
  'naxsi',
  'events',
] as const;

export type LogFormat = (typeof LOG_FORMATS)[number];

export interface LogRecord {
  /** Milliseconds since the epoch. */
  time: number;
  host?: string | undefined;
  hostId?: string | undefined;
  request: boolean;
  attack: Category | null;
  count: number;
  /** Of an attack: attackDetails() makes them. */
  details?: AttackDetails | undefined;
  /** Why the attack is in its category. */
  evidence?: readonly Classification[] | undefined;
  /** How the category was chosen, where rules were judged. */
  decision?: Decision | undefined;
}

/** What a line, or several that belong together, came out as. */
export type Parsed = (
  | { kind: 'record'; record: LogRecord; format: LogFormat | 'none' }
  | {
      kind: 'dropped';
      reason: DropReason;
      /** None: the line is in no known format. */
      format: LogFormat | 'none';
      evidence?: readonly Classification[];
    }
) & {
  /** For `explain`: the variables of a pattern with their values. */
  fields?: PatternFields['fields'];
  /** For `explain`: why the line did not match. */
  hint?: string | undefined;
  /** What the line was wrapped in: `docker`, or `syslog in cri`. */
  wrapper?: string;
  /** For `explain`: the first and the last line of a record that has several. */
  lines?: LineRange | undefined;
};

export type LineRange = readonly [first: number, last: number];

/** A request that a firewall wrote down, or a part of it. */
export interface Transaction {
  /** As the firewall numbered it; '' when it did not, or the line was cut before. */
  id: string;
  time: number;
  host: string | undefined;
  rules: readonly Rule[];
  /** Absent when the log does not say these. `blocked: true` is evidence: the request counts even without rules. */
  details?: AttackDetails | undefined;
  /** The log has a record of every request, so this one counts as a request too, attack or not. */
  request?: boolean;
}

/** What a format makes of a piece of text. Whether that is an attack, and of which category, is decided elsewhere. */
export type Reading =
  /** `id`: of a request that may be told again. */
  | { kind: 'record'; record: LogRecord; id?: string }
  | { kind: 'dropped'; reason: DropReason }
  /** A line that names the columns of those that follow. */
  | { kind: 'header' }
  | { kind: 'transaction'; transaction: Transaction }
  | { kind: 'hit'; hit: RuleHit };

/** One matched rule of a request: others may follow. */
export interface RuleHit extends Transaction {
  /** When the line was written, which for a slow request is long after it began. */
  written: number;
  /** Tells requests apart when the id was cut off; '' when the log does not say it. */
  connection: string;
  /** Where `id` is '' because a client may have written what the line names: all ids in it, maybe the real one too. */
  claimedIds?: readonly string[];
}

/** What a format must know beside the text. */
export interface Context {
  /** For times that name no zone. */
  zone: LocalZone;
  clock: LogClock;
  /** As the last `#Fields:` line named them; null until one has been read. */
  columns: readonly string[] | null;
}

/** What the lines of a format have, in the order in which `explain` says what a line lacks. */
export type Traits<T> = readonly (readonly [about: string, test: (value: T) => boolean])[];

interface Named<T> {
  name: LogFormat;
  about: string;
  traits: Traits<T>;
}

export interface TextFormat extends Named<string> {
  /** A cheap look: the parser may still refuse the line. */
  recognizes(line: string): boolean;
  parse(line: string, context: Context): Reading;
}

export interface JsonFormat extends Named<JsonObject> {
  recognizes(fields: JsonObject): boolean;
  parse(fields: JsonObject, context: Context): Reading;
}

export function dropped(reason: DropReason): Reading {
  return { kind: 'dropped', reason };
}

/** A trait of JSON: one of these fields. */
export function anyOf(about: string, names: readonly string[]): Traits<JsonObject>[number] {
  const list = names.length === 1 ? '' : `: ${names.slice(0, -1).join(', ')} or ${names.at(-1)}`;
  return [`${about}${list}`, (fields) => names.some((name) => fields[name] !== undefined)];
}

/** A trait of JSON: this field, which is an object. */
export function objectField(name: string): Traits<JsonObject>[number] {
  return [`${name} object`, (fields) => asObject(fields[name]) !== null];
}

/** `[10/Dec/2025:09:25:32 +0000]` */
export const COMMON_TIME = /\[\d{2}\/[A-Z][a-z]{2}\/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\]/;
