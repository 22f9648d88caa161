import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { parseQpsQuery, parseTimelineQuery, parseTopQuery, parseTotalsQuery, queryOf } from '../query.ts';
import { withFilter } from './attack-filters.ts';
import { type Parse, UrlParsers } from './url-parser.ts';

const NOW = Date.UTC(2026, 6, 1, 12, 34, 56, 789);
const PARSERS: Parse<ReturnType<typeof parseTotalsQuery>>[] = [
  parseTimelineQuery,
  parseTotalsQuery,
  parseQpsQuery,
  withFilter(parseTopQuery),
];

const time = fc.oneof(
  fc.constantFrom('', '0', '-1', '007', '1e3', '99999999999999999', '9007199254740993', '%31', '1%30'),
  fc.integer({ min: NOW - 3_000, max: NOW }).map(String),
);
/** Few values, so that the rest of a URL repeats. */
const rest = fc.constantFrom(
  '',
  '&',
  '&hosts=a,b',
  '&hosts=a&hosts=b',
  '&hosts=a%2Cb',
  '&hosts=',
  '&hosts=a.b',
  '&hosts=a&instances=b',
  '&timezone=%2B02:00',
  '&timezone=x',
  '&recent=today',
  '&recent=',
  '&from=5',
  '&%66rom=5',
  '&to=7',
  '&group_by=DAY',
  '&display_option=1&top=3',
  '&attacks=xss',
  '&host=a',
  '#hosts=a',
  '&&top=2',
);
const start = fc.constantFrom(
  '?from=',
  '?',
  '?hosts=a&from=',
  '?to=1&from=',
  '?recent=3days&from=',
  '?x=?from=',
  '?x=?&from=',
  '?hosts=a,b&timezone=%2B02:00&from=',
  '&from=1&to=2?from=',
);
const url = fc
  .tuple(start, time, time, rest)
  .map(([first, from, to, last]) => `/v1/p/waf/event/timeline${first}${from}&to=${to}${last}`);
const PROJECT = 'p';

function outcome(parse: () => unknown): unknown {
  try {
    return parse();
  } catch (error) {
    return (error as Error).message;
  }
}

describe('parsed URLs', () => {
  test('equal those of the plain parser, whatever was parsed before', () => {
    const parsers = new UrlParsers();
    const added = PARSERS.map((parse) => parsers.add(parse));
    fc.assert(
      fc.property(fc.nat(PARSERS.length - 1), url, (i, text) => {
        const parse = PARSERS[i] ?? parseTotalsQuery;
        const plain = outcome(() => {
          const rawQuery = queryOf({ url: text });
          return {
            query: { ...parse(rawQuery, NOW), project: PROJECT },
            isRecent: rawQuery.recent !== undefined,
          };
        });
        expect(outcome(() => added[i]?.(text, PROJECT, NOW))).toEqual(plain);
      }),
      { numRuns: scaled(5_000) },
    );
  });

  test.each(['?from=RANGE&hosts=a,b', '?hosts=a,b&from=RANGE', '?timezone=%2B02:00&from=RANGE&hosts=a,b'])(
    'share what does not depend on the range: %s',
    (query) => {
      const parse = new UrlParsers().add(parseTimelineQuery);
      const [first, second] = ['1&to=9', '2&to=9'].map(
        (range) => parse(`/v1/p${query.replace('RANGE', range)}`, PROJECT, NOW).query,
      );
      expect(first).toMatchObject({ from: 1, to: 9, hosts: ['a', 'b'], project: PROJECT });
      expect(second).toMatchObject({ from: 2, to: 9, project: PROJECT });
      expect(second?.hosts).toBe(first?.hosts);
    },
  );
});
