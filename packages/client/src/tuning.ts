/** The tuning report of the service, and the file of exclusions from it. */

export interface TuningReport {
  /** Number of rows, of which `items` has the first 1,000. */
  total: number;
  /** Best candidates for an exclusion first. */
  items: TuningItem[];
  /** Number of attacks in the range, of these hosts. */
  attacks: number;
  /** How many of them are kept: the report is based on these. */
  kept_attacks: number;
  /** Whether all of them are kept. */
  complete: boolean;
  /** Kept attacks that no row has. */
  left_out: number;
  /** What the firewall would have blocked, had it not only detected. */
  blocking: {
    days: { day: string; attacks: number; would_block: number; false_positives: number }[];
    would_block: number;
    false_positives: number;
    /** Whether there are 7 days of data, and no likely false positive in the last 7 days. */
    ready: boolean;
    /** The same in a sentence. */
    text: string;
  };
}

/** Rules that match a variable together, on a host and a path. Host, path and variable come from clients. */
export interface TuningItem {
  rules: string[];
  /** Empty for attacks without a registered host. */
  host: string;
  /** `*` stands for numbers, UUIDs and long hex. */
  path: string;
  /** Empty if the log does not name it. */
  variable: string;
  attacks: number;
  blocked: number;
  sources: number;
  days: number;
  /** How many of the attacks would pass without these rules on this variable. */
  alone: number;
  likely: 'false_positive' | 'unclear' | 'attack';
  reasons: string[];
  /** Directives for ModSecurity and Coraza. */
  exclusion: string;
  /** Attacks of attacking sources that would pass. Do not use the exclusion unless this is 0. */
  opens_attacks: number;
  /** Times of the first and the last attack, in milliseconds since the epoch. */
  first_seen: number;
  last_seen: number;
}

export interface ExclusionChoice {
  /** Also rows that are not marked as false positives. */
  all?: boolean | undefined;
  /** Also exclusions that would open attacks. */
  force?: boolean | undefined;
}

/** The rows whose exclusions to use. */
export function chosenExclusions(
  { items }: Pick<TuningReport, 'items'>,
  { all = false, force = false }: ExclusionChoice = {},
): TuningItem[] {
  return items.filter(
    ({ likely, opens_attacks }) => (all || likely === 'false_positive') && (force || opens_attacks === 0),
  );
}

/** A file for ModSecurity 2, ModSecurity 3 and Coraza with the exclusions of these rows. */
export function exclusionFile(items: readonly TuningItem[]): string {
  const count = `${items.length} ${items.length === 1 ? 'exclusion' : 'exclusions'}`;
  const head = [
    `# ${count} from wafstat. Read each one, then load the file before the rules of CRS.`,
    '# IDs of rules must be unique: if you load several such files, give each another range (--id-from).',
  ];
  return `${head.join('\n')}\n${items.map(({ exclusion }) => `\n${exclusion}`).join('')}`;
}
