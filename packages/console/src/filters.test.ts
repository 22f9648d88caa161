import { ATTACK_TYPES } from '@wafstat/client';
import { expect, test } from 'vitest';
import { curlCommand, wafstatCommand } from './export.ts';
import { apiFilter, countedCategories, type Filter, filterTitle, only, toggled } from './filters.ts';

const filter = (field: Filter['field'], value: string, isExcluded = false): Filter => ({
  field,
  value,
  isExcluded,
});

test('a value is included, excluded, and removed again', () => {
  const included = toggled([], filter('category', 'sqli'));
  expect(countedCategories(included)).toEqual(['sqli']);
  expect(countedCategories(toggled(included, filter('category', 'xss')))).toEqual(['xss', 'sqli']);
  const excluded = toggled(included, filter('category', 'sqli', true));
  expect(excluded).toEqual([filter('category', 'sqli', true)]);
  expect(countedCategories(excluded)).toEqual(ATTACK_TYPES.filter((name) => name !== 'sqli'));
  expect(toggled(excluded, filter('category', 'sqli', true))).toEqual([]);
});

test('only one value replaces the others of its field', () => {
  const filters = [filter('source', '192.0.2.1'), filter('source', '192.0.2.2', true), filter('rule', '1')];
  expect(only(filters, 'source', '192.0.2.3')).toEqual([filter('rule', '1'), filter('source', '192.0.2.3')]);
});

test('a filter has the names of the client, of the API and of the command line', () => {
  const filters = [
    filter('source', '192.0.2.0/24'),
    filter('rule', '942100', true),
    filter('url', "/it's,here"),
    filter('country', 'DE', true),
    filter('status', '403'),
  ];
  expect(apiFilter(filters)).toEqual({
    sips: ['192.0.2.0/24'],
    nrules: ['942100'],
    urls: ["/it's,here"],
    nipCountries: ['DE'],
    responseCodes: ['403'],
  });
  const query = { origin: 'http://a', project: 'p', from: 1, to: 2, hosts: ['h'], filters, path: 'event' };
  expect(curlCommand(query)).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://a/v1/p/waf/event?from=1&to=2&hosts=h&sips=192.0.2.0%2F24&urls=%2Fit%27s%2Chere&nrules=942100&nip_countries=DE&response_codes=403'`,
  );
  expect(wafstatCommand('events', query)).toBe(
    `wafstat events --project p --from 1 --to 2 --host h --source 192.0.2.0/24 --not-rule 942100 --attack-url '/it'\\''s,here' --not-country DE --status 403`,
  );
});

test.each([
  [filter('action', 'log'), 'Action: only detected'],
  [filter('category', 'cc', true), 'Not category: HTTP floods (CC)'],
  [filter('url', '/a', true), 'Not URL: /a'],
  [filter('country', 'DE'), 'Country: Germany'],
])('%j is shown as %s', (given, title) => {
  expect(filterTitle(given)).toBe(title);
});
