/** The one normal form that every log format is turned into, and the closed sets it is made of. */

/** The 13 attack categories, in the order of the interface specification. */
export const CATEGORIES = [
  'xss',
  'sqli',
  'cmdi',
  'cc',
  'custom',
  'illegal',
  'lfi',
  'robot',
  'antitamper',
  'rfi',
  'vuln',
  'whiteblackip',
  'webshell',
] as const;

export type Category = (typeof CATEGORIES)[number];

const CATEGORY_NUMBERS: ReadonlyMap<string, number> = new Map(
  CATEGORIES.map((name, number) => [name, number]),
);

/** The position of a category in CATEGORIES, or undefined when the name is none of the thirteen. */
export function categoryNumber(name: string): number | undefined {
  return CATEGORY_NUMBERS.get(name);
}

/** What one log record says: `count` times a request, an attack, or a request that was an attack. */
export interface Event {
  /** Milliseconds since the epoch, a whole number. */
  time: number;
  /** The registered host, or null for traffic without a registered host (it counts in the project's total only). */
  hostId: string | null;
  request: boolean;
  attack: Category | null;
  count: number;
  details?: AttackDetails | undefined;
}

/** What a log says of an attack beside its category. A field that the log does not name is absent. */
export interface AttackDetails {
  /** Whether the firewall stopped the request. */
  blocked?: boolean;
  /** The address that the request came from, in its canonical form. */
  source?: string;
  /** The path of the URL, without the query, at most 256 bytes. */
  url?: string;
  /** The rule that decided the category. */
  rule?: string;
  /** ISO 3166-1 alpha-2, upper case. */
  country?: string;
}

/** Why a log record was not counted. A closed set, because operators alert on it and it is a key in the store. */
export const DROP_REASONS = {
  line_too_long: 'the line is longer than the limit of 1 MiB',
  unknown_format: 'the line is in no known format, or not in the one that was given',
  not_json: 'the line is not JSON',
  json_fragment:
    'the line is part of JSON that is printed over several lines: put each record on one line, for example with `jq -c .`',
  not_an_object: 'the line is JSON, but not an object',
  bad_time: 'the time is missing or malformed (in an event: whole milliseconds, or ISO 8601 with an offset)',
  bad_host: '`host` or `host_id` is not a string, or `host_id` is not an ID',
  bad_request: '`request` is not true or false',
  bad_attack: '`attack` is none of the 13 category names',
  bad_count: '`count` is not a whole number from 1 to 1,000,000',
  bad_details:
    '`blocked` is not true or false, `source` is not an IP address, `country` is not two letters, or `url` or `rule` is not a text',
  too_many_records: 'the line holds more than 10,000 records: the rest of it is left out',
  nothing_to_count: 'the record is neither a request nor an attack',
  bad_record: 'the record lacks something that its format needs',
  unfinished_record: 'the record stops before its end',
  other_log_line: 'the line of an error log is about neither a matched rule nor a refused request',
  not_an_attack:
    'the record has no rule of any category and no verdict: its status, or the set-up, made the firewall log it',
  same_request: 'another record of the same request has been counted',
  too_old: 'the event is older than the retention time',
  in_future: 'the event is more than 24 hours in the future',
} as const;

export type DropReason = keyof typeof DROP_REASONS;

/** Bounds what one line can add, so that a typing error cannot bury a month of real traffic. */
export const EVENT_COUNT_MAX = 1_000_000;

/** Domain and project IDs alike: what the `hosts` parameter and the path accept. */
export const ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
