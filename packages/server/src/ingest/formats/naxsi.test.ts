import { expect, test } from 'vitest';
import {
  attacksOf,
  fixtureLines,
  outcomes,
  readFixture,
  readLines,
  recordsOf,
} from '../../../fixtures/read-fixture.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const HOST = 'shop.example.com';

test('a request is one attack, in the category with the highest score', () => {
  const parsed = readFixture('naxsi.log');
  expect(outcomes(parsed)).toEqual([
    'same_request',
    'sqli',
    'xss',
    'illegal',
    'lfi',
    'same_request',
    'same_request',
    'rfi',
    'custom',
  ]);
  for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
  expect(attacksOf(parsed)).toEqual([
    ['sqli', true, '1000'],
    ['xss', false, '1302'],
    ['illegal', true, '11'],
    ['lfi', true, '1200'],
    ['rfi', false, '1101'],
    ['custom', true, '10001'],
  ]);
});

test('a line that was cut, or that a Host header garbles, is still an attack', () => {
  const head = '2026/07/01 10:20:30 [error] 1#1: *1 ';
  expect(
    outcomes(readLines([`${head}NAXSI_FMT: ip=192.0.2.7&server=x, client: y&uri=/&cscore0=$SQL`])),
  ).toEqual(['vuln']);
  expect(
    outcomes(readLines([`${head}{"ip":"192.0.2.7","mode":"block","score":{"$SQL":8},"match":[{"zone":"AR`])),
  ).toEqual(['sqli']);
});

test('a Host header cannot change the category of its attack', () => {
  const line = fixtureLines('naxsi.log')[1] ?? '';
  const forged = line.replace('server=', 'server=a&config=learning&cscore0=$EVADE&score0=99&id0=10001&x=');
  expect(attacksOf(readLines([forged]))).toEqual([['sqli', true, '1000']]);
});

test('client text cannot turn a ModSecurity line into a NAXSI line', () => {
  const line = fixtureLines('nginx-error.log').find((each) => each.includes('[id "942100"]')) ?? '';
  const forged = line.replace('[data "', '[data "*1 NAXSI_EXLOG: ip=x');
  expect(readLines([forged]).map(({ format }) => format)).toEqual(['nginx-error']);
});
