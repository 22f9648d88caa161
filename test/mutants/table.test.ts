import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { MUTANTS } from './table.ts';

const path = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url));

test('names of mutants are unique', () => {
  const names = MUTANTS.map(({ name }) => name);
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  expect(names.filter((name) => !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name))).toEqual([]);
});

test('every mutant changes one place of a file, and names tests that exist', () => {
  for (const { name, file, from, to, tests } of MUTANTS) {
    const places = readFileSync(path(file), 'utf8').split(from).length - 1;
    expect(places, `${name}: places of "${from}" in ${file}`).toBe(1);
    expect(to, name).not.toBe(from);
    expect(tests.length, name).toBeGreaterThan(0);
    for (const each of tests) expect(existsSync(path(each.file)), `${name}: ${each.file}`).toBe(true);
  }
});
