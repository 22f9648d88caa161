/**
 * Parses the URLs of statistics queries. A dashboard repeats a query with another range, so all other parsed parameters
 * are cached: a URL with ten hosts takes 1.2 us instead of 6.8, of about 50 us for a computed distribution.
 */
import { BoundedCache } from '../../cache.ts';
import { parseRange } from '../../statistics/range.ts';
import { queryOf, type RawQuery, type StatisticsQuery } from '../query.ts';

/** The result has the range of the URL, before the call widens it. */
export type Parse<Q extends StatisticsQuery> = (query: RawQuery, now: number) => Q;

interface Parsed<Q> {
  query: Q;
  /** Whether the range depends on the time of the request. */
  isRecent: boolean;
}

/** About 40 selections of a thousand hosts. */
const PARSED_BYTES_MAX = 4_194_304;
/** The memory of the objects of a query. */
const QUERY_BYTES = 512;

const RANGE_FIRST = /^[^?]*\?from=([0-9]{1,16})&to=([0-9]{1,16})(?:&|$)/;

export class UrlParsers {
  readonly #queries = new BoundedCache<string, StatisticsQuery>({
    name: 'queries',
    entriesMax: PARSED_BYTES_MAX / QUERY_BYTES,
    weightMax: PARSED_BYTES_MAX,
    weight: ({ hosts = [] }, key) => QUERY_BYTES + key.length + 56 * hosts.length,
  });
  #parsers = 0;

  /** A parser for the URLs of a call. */
  add<Q extends StatisticsQuery>(parse: Parse<Q>): (url: string, now: number) => Parsed<Q> {
    const parser = ++this.#parsers;
    const parseAll = (url: string, now: number): Parsed<Q> => {
      const rawQuery = queryOf({ url });
      return { query: parse(rawQuery, now), isRecent: rawQuery.recent !== undefined };
    };
    return (url, now) => {
      const match = RANGE_FIRST.exec(url);
      if (match === null) return parseAll(url, now);
      const [start, from, to] = match;
      const key = `${parser} ${url.slice(start.length)}`;
      // Only this parser has added queries under its number.
      const known = this.#queries.get(key) as Q | undefined;
      if (known !== undefined)
        return { query: { ...known, ...parseRange({ from, to }, 0, now) }, isRecent: false };
      const parsed = parseAll(url, now);
      // A second `from` or `to` in the rest is an error, so the range is that of the match.
      if (!parsed.isRecent) this.#queries.set(key, parsed.query);
      return parsed;
    };
  }
}
