/**
 * Which sources attack: those that matched rules of three or more files over at least three requests, or sent attacks on more
 * than ten paths within an hour.
 */
import { HOUR_MS } from '../store/store.ts';
import { fileOf } from './anomaly-score.ts';

const REQUESTS_MIN = 3;
const FILES_MIN = 3;
const PATHS_MAX = 10;

/** A source takes about 300 bytes. */
const SOURCES_MAX = 262_144;
/** How many distinct rules of a source are remembered. */
const RULES_MAX = 8;
/** Bits that a number has for files. CRS has fewer. */
const FILE_BITS = 31;

interface Profile {
  requests: number;
  /** One bit for each file. */
  files: number;
  isAttacking: boolean;
  /** The paths of the last hour: hash and time, alternately. */
  paths: number[];
  /** The first few rules, in the order of their first match. */
  rules: number[];
}

export class Sources {
  readonly #numbers = new Map<string, number>();
  readonly #profiles: Profile[] = [];
  readonly #files = new Map<number, number>();

  /** Adds the source if it is new. Undefined beyond the limit. */
  add(source: string): number | undefined {
    const known = this.#numbers.get(source);
    if (known !== undefined) return known;
    if (this.#profiles.length === SOURCES_MAX) return undefined;
    const number = this.#profiles.length;
    this.#numbers.set(source, number);
    this.#profiles.push({ requests: 0, files: 0, isAttacking: false, paths: [], rules: [] });
    return number;
  }

  find(source: string): number | undefined {
    return this.#numbers.get(source);
  }

  /** Call it in the order of time. `path`: a hash. */
  addRequests(number: number, time: number, count: number, path: number, rules: readonly number[]): void {
    const profile = this.#profiles[number] as Profile;
    profile.requests += count;
    for (const rule of rules) {
      profile.files |= this.#bitOf(rule);
      if (profile.rules.length < RULES_MAX && !profile.rules.includes(rule)) profile.rules.push(rule);
    }
    if (profile.isAttacking) return;
    addPath(profile.paths, path, time);
    const hasManyFiles = profile.requests >= REQUESTS_MIN && bitsOf(profile.files) >= FILES_MIN;
    if (!hasManyFiles && profile.paths.length / 2 <= PATHS_MAX) return;
    profile.isAttacking = true;
    profile.paths = [];
  }

  /** Sources beyond the limit are unknown: what they sent must not support an exclusion. */
  isAttacking(number: number | undefined): boolean {
    return number === undefined || (this.#profiles[number]?.isAttacking ?? true);
  }

  /** Whether the source matched no other rules. */
  hasOnly(number: number, rules: readonly number[]): boolean {
    return this.#profiles[number]?.rules.every((rule) => rules.includes(rule)) ?? false;
  }

  /** How many distinct rules the source matched; RULES_MAX for more. */
  ruleCount(number: number): number {
    return this.#profiles[number]?.rules.length ?? 0;
  }

  /** The number of files whose rules the sources matched. */
  fileCount(numbers: Iterable<number>): number {
    let files = 0;
    for (const number of numbers) files |= this.#profiles[number]?.files ?? 0;
    return bitsOf(files);
  }

  #bitOf(rule: number): number {
    const file = fileOf(rule);
    const known = this.#files.get(file) ?? this.#files.size % FILE_BITS;
    this.#files.set(file, known);
    return 1 << known;
  }
}

/** Removes the paths that are more than an hour old. */
function addPath(paths: number[], path: number, time: number): void {
  let end = 0;
  for (let i = 0; i < paths.length; i += 2) {
    const [hash = 0, last = 0] = [paths[i], paths[i + 1]];
    if (hash === path || last <= time - HOUR_MS) continue;
    paths[end++] = hash;
    paths[end++] = last;
  }
  paths[end++] = path;
  paths[end++] = time;
  paths.length = end;
}

function bitsOf(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count++;
  return count;
}
