/**
 * The most frequent paths of requests with an error, in one batch: few enough that any number of distinct paths costs little.
 * As in Misra and Gries: if there are too many paths, all lose the count of the first one that goes.
 */
import { attackDetails, remembered } from '../attack-details.ts';
import { PAGE_CODES, TOP_URL_BYTES_MAX, topUrl } from '../event.ts';
import { type ErrorPages, HOUR_MS, PAGE_KEYS_MAX } from '../store/store.ts';

/** Paths that are counted before the least frequent ones go. */
const PATHS_MAX = 32 * PAGE_KEYS_MAX;

/** The paths of one hour, host and code. */
export interface Paths {
  hour: number;
  host: string | undefined;
  hostId: string | undefined;
  code: number;
  counts: Map<string, number>;
  /** The requests that are not in `counts`, and how many of them a path has at most. */
  lost: number;
  error: number;
}

/** By hour, host and code. */
export type PathLists = Map<string, Paths>;

interface Page {
  time: number;
  host?: string | undefined;
  hostId?: string | undefined;
  status: number;
  page: string;
  count: number;
}

export class PageCounts {
  /** Plain data. */
  readonly lists: PathLists;
  /** Consecutive lines often have the same list. */
  #last: Paths | undefined;

  constructor(lists: PathLists = new Map()) {
    this.lists = lists;
  }

  add({ time, host, hostId, status, page, count }: Page): void {
    this.#last = this.open(this.#last, time, host, hostId, status);
    this.addTo(this.#last, page, count);
  }

  /** The list of a line. `last`: one that may be it, because finding it takes longer than all the rest. */
  open(
    last: Paths | undefined,
    time: number,
    host: string | undefined,
    hostId: string | undefined,
    code: number,
  ): Paths {
    const hour = Math.floor(time / HOUR_MS);
    if (last?.hour === hour && last.code === code && last.host === host && last.hostId === hostId)
      return last;
    const key = `${hour} ${code} ${hostId === undefined ? '' : `#${hostId}`} ${host ?? ''}`;
    let list = this.lists.get(key);
    if (list === undefined) {
      list = { hour, host, hostId, code, counts: new Map(), lost: 0, error: 0 };
      this.lists.set(key, list);
    }
    return list;
  }

  addTo(list: Paths, page: string, count: number): void {
    const { counts } = list;
    // Before anything is evicted: many pages may be one path.
    const path = isPlain(page) ? page.slice(0, TOP_URL_BYTES_MAX) : pathOf(page);
    if (path === '') {
      list.lost += count;
      return;
    }
    counts.set(path, (counts.get(path) ?? 0) + count);
    if (counts.size > PATHS_MAX) shrink(list);
  }

  /** `idOf`: the ID of a host by its name; null if it is not registered. */
  pages(idOf: (host: string) => string | null): ErrorPages[] {
    return Array.from(this.lists.values(), (list) => {
      if (list.counts.size > PAGE_KEYS_MAX) shrink(list);
      const { hour, host, code, counts, lost, error } = list;
      const hostId = list.hostId ?? (host === undefined ? null : idOf(host));
      return { hour, hostId, code: PAGE_CODES.indexOf(code), paths: counts, lost, error };
    });
  }
}

/** A path as it is kept; '' if it is none. Errors are often about the same paths. */
const pathOf = remembered((page) => topUrl(attackDetails({ url: page })?.url ?? ''));

/** Most paths have nothing to mask or to encode: `pathOf` would only cut them. */
function isPlain(page: string): boolean {
  return page.charCodeAt(0) === SLASH && !NOT_PLAIN.test(page);
}

const SLASH = 0x2f;
const NOT_PLAIN = /[^\w./,;~!$&'()*-]|eyJ/;

/** Leaves at most PAGE_KEYS_MAX paths. */
function shrink(list: Paths): void {
  const least = leastOf(list.counts);
  const kept = new Map<string, number>();
  for (const [path, count] of list.counts) {
    list.lost += Math.min(count, least);
    if (count > least) kept.set(path, count - least);
  }
  list.error += least;
  list.counts = kept;
}

/** The largest count that goes. */
function leastOf(counts: ReadonlyMap<string, number>): number {
  let repeated = 0;
  for (const count of counts.values()) if (count > 1) repeated++;
  // In a flood of paths, nearly all are new.
  if (repeated <= PAGE_KEYS_MAX) return 1;
  const sorted = Float64Array.from(counts.values()).sort();
  return sorted[sorted.length - 1 - PAGE_KEYS_MAX] ?? 0;
}
