/** What the API answers. Every time is in milliseconds since the epoch. */

/** The categories of attacks, in the order of the interface specification. */
export const ATTACK_TYPES = [
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

export type AttackType = (typeof ATTACK_TYPES)[number];

/** Events of each category; they add up to the attacks of the timeline of the same range. */
export type AttackTypes = Record<AttackType, number>;

/** Both series have the same times. */
export interface Timeline {
  requests: Point[];
  attacks: Point[];
}

export interface Point {
  /** The end of the point; what happened at this very millisecond is in the next one. */
  time: number;
  num: number;
}

export interface List<Item> {
  total: number;
  items: Item[];
}

export interface Host {
  /** What the `hosts` of a query take. */
  id: string;
  hostname: string;
  /** When it was registered. */
  timestamp: number;
}

/** A log source of the project. */
export interface Connection {
  id: string;
  name: string;
  format: string;
  /** IDs of the hosts it has reported on. */
  hosts: string[];
  events: number;
  /** Records among `events` without a registered host: they count in the project's total only. */
  without_host: number;
  /** Records that were not counted, by reason. */
  dropped: Record<string, number>;
  /** The earliest and the latest event, null when there is none. */
  first_seen: number | null;
  last_seen: number | null;
}
