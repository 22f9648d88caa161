import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { fixtureLines } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { asArray, asObject } from './json.ts';
import { type PreparedShape, pickJson, prepareShape, Recurring, type Shape } from './json-picker.ts';
import { MODSECURITY3_SHAPE } from './modsecurity-json.ts';

const SHAPE = {
  transaction: { id: 'scalar', time_stamp: 'scalar', Host: 'scalar', host: 'scalar', tags: ['scalar'] },
  messages: [{ ver: 'scalar', details: { ruleId: 'scalar' } }],
  table: [['scalar']],
} as const satisfies Shape;
const PREPARED = prepareShape(SHAPE);

/** What JSON.parse returns, without the fields that are not wanted. */
function pruned(value: unknown, shape: Shape): unknown {
  if (shape === 'scalar') return value;
  if (Array.isArray(shape)) return (value as unknown[]).map((each) => pruned(each, shape[0]));
  if (shape instanceof Recurring) return pruned(value, shape.fields);
  const wanted = Object.entries(asObject(value) ?? {}).filter(([name]) => Object.hasOwn(shape, name));
  const inner = shape as { readonly [name: string]: Shape };
  return Object.fromEntries(wanted.map(([name, each]) => [name, pruned(each, inner[name] ?? 'scalar')]));
}

/** Either the picker gives up, or it agrees with JSON.parse. Returns whether it has picked. */
function agrees(text: string): boolean {
  const picked = pickJson(text, PREPARED);
  if (picked === undefined) return false;
  // Throws if the picker accepts what JSON.parse does not.
  expect(picked).toEqual(pruned(JSON.parse(text), SHAPE));
  return true;
}

const NAMES = [
  'id',
  'time_stamp',
  'Host',
  'host',
  'hOst',
  'tags',
  'ver',
  'details',
  'ruleId',
  'messages',
  'table',
];
const name = fc.oneof(fc.constantFrom('transaction', ...NAMES, '__proto__', ''), fc.string());
const text = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom('a"b\\c\n', '\u0000', '\ufeff', '\ud800'),
);
const scalar = fc.oneof(text, fc.integer(), fc.double(), fc.boolean(), fc.constant(null), fc.constant(1e300));
const { value: anyValue } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    scalar,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(name, tie('value'), { maxKeys: 5 }),
  ),
}));
/** A name without escapes that is not similar to a wanted one. */
const otherName = fc.string().map((each) => `x${each.replaceAll(/["\\]/g, '')}`);
/** A document of the shape, with other fields besides it. */
const document = fc
  .record(
    {
      transaction: fc
        .record(
          { id: scalar, time_stamp: scalar, Host: scalar, host: scalar, tags: fc.array(scalar) },
          { requiredKeys: [] },
        )
        .chain((wanted) =>
          fc.dictionary(otherName, anyValue, { maxKeys: 4 }).map((more) => ({ ...more, ...wanted })),
        ),
      messages: fc.array(fc.record({ ver: scalar, x: anyValue, details: fc.record({ ruleId: scalar }) }), {
        maxLength: 3,
      }),
      table: fc.array(fc.array(scalar, { maxLength: 3 }), { maxLength: 3 }),
      other: anyValue,
    },
    { requiredKeys: [] },
  )
  .map((value) => JSON.stringify(value));

describe('a picker agrees with JSON.parse', () => {
  test('on documents of its shape, and gives up on none in ASCII', () => {
    fc.assert(
      fc.property(document, (json) => {
        const isAscii = Buffer.byteLength(json) === json.length;
        expect(agrees(json)).toBe(isAscii);
      }),
    );
  });

  test('on documents with replaced, inserted and missing characters', () => {
    const change = fc.tuple(
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.integer({ min: 0, max: 3 }),
      fc.oneof(
        fc.constantFrom(
          ...'{}[]":,\\ue0-+.\t \u0000\u007f\u0080x',
          'null',
          'true',
          '\\u00e',
          '""',
          '1e5',
          '01',
        ),
        text,
      ),
    );
    fc.assert(
      fc.property(document, fc.array(change, { minLength: 1, maxLength: 3 }), (json, changes) => {
        let changed = json;
        for (const [where, removed, inserted] of changes) {
          const at = Math.floor(where * changed.length);
          changed = changed.slice(0, at) + inserted + changed.slice(at + removed);
        }
        agrees(changed);
        agrees(json.slice(0, changed.length % (json.length + 1)));
      }),
      { numRuns: scaled(1_000) },
    );
  });

  test('on names that occur twice, that are escaped, and in another case', () => {
    const entry = fc.tuple(
      fc.oneof(
        name.map((each) => JSON.stringify(each)),
        fc.constantFrom('"\\u0069d"', '"i\\u0064"', '"ID"', '"Tags"'),
      ),
      anyValue.map((each) => JSON.stringify(each)),
    );
    const object = fc
      .array(entry, { maxLength: 6 })
      .map((all) => `{${all.map(([key, value]) => `${key}:${value}`).join()}}`);
    fc.assert(
      fc.property(object, (inner) => void agrees(`{"transaction":${inner}}`)),
      { numRuns: scaled(1_000) },
    );
  });

  test.each([
    ['{"x":-0.5e+10,"transaction":{"id":-0}}', true],
    ['{"x":{"a":[{},[],[[1]],{"b":{"c":null}}]},"transaction":{"id":"\\u00e9\\n"}}', true],
    ['{"transaction":{"id":1e999,"time_stamp":123456789012345678901234567890}}', true],
    [`{"x":${'['.repeat(31)}${']'.repeat(31)}}`, true],
    [`{"x":${'['.repeat(40)}${']'.repeat(40)}}`, false],
    [`{"x":${'[{"a":'.repeat(5_000)}1${'}]'.repeat(5_000)}}`, false],
    ['{"transaction":{"id":"1","id":"2"}}', false],
    ['{"transaction":{"HOST":"a"}}', false],
    ['{"transaction":{"id":[]}}', false],
    ['{"transaction":[]}', false],
    ['{ "transaction":{}}', false],
    ['{"x":01}', false],
    ['{"x":1.}', false],
    ['{"x":.5}', false],
    ['{"x":+1}', false],
    ['{"x":1e}', false],
    ['{"x":tru}', false],
    ['{"x":falsy}', false],
    ['{"x":"\\x"}', false],
    ['{"x":"\\u12g4"}', false],
    ['{"x":"\t"}', false],
    ['{"x":"\u0000"}', false],
    ['{"x":"\u0122"}', false],
    ['{"x":[1,]}', false],
    ['{"x":1,}', false],
    ['{"x":1]', false],
    ['{"x":[1}', false],
    ['{"x":1}}', false],
    ['{"x":1}\u0000', false],
    ['{"x":"', false],
    ['{"x":"\\', false],
    ['{"x"', false],
    ['{}', true],
    ['\ufeff{}', false],
    ['[]', false],
    ['', false],
    [`{"x":"${'a'.repeat(65_536)}"}`, false],
    [`{"x":"${'a'.repeat(65_528)}"}`, true],
  ])('on %s', (json, isPicked) => {
    expect(agrees(json)).toBe(isPicked);
  });

  const FULL = 65_536;
  const START = '{"transaction":{"';

  test.each([
    ['ends after a comma', `${START}id":1,`],
    ['ends after a comma, with a long name', `${START}${'a'.repeat(40)}":1,`],
    ['ends after a brace', '{"transaction":{'],
    ['ends after two bytes of a name', `${START}id":1,"ti`],
    ['has a comma and no name', `${START}id":1,x`],
  ])('on a line that %s, after one that fills the memory', (_name, cut) => {
    const tooLong = START + 'é'.repeat(8) + 'a'.repeat(FULL - START.length - 8);
    for (const earlier of [tooLong, `${START}${'a'.repeat(FULL - START.length)}`, '"'.repeat(FULL)]) {
      expect(agrees(earlier)).toBe(false);
      expect(agrees(cut)).toBe(false);
    }
  });

  test('on a line cut at any byte, after any other line around the length limit', () => {
    const unit = fc.constantFrom(
      'a',
      '"',
      '":"',
      '":1,"',
      '}}',
      '\\',
      '\\u00e9',
      'true',
      '1',
      'é',
      '€',
      '😀',
      '\ud800',
    );
    const earlier = fc
      .tuple(
        fc.constantFrom('', START),
        fc.constantFrom('', 'é', 'é'.repeat(9), '€€€', '😀😀😀'),
        unit,
        fc.integer({ min: -9, max: 3 }),
      )
      .map(([start, odd, repeated, more]) => {
        const filled = start + odd + repeated.repeat(FULL / repeated.length);
        return filled.slice(0, FULL + more - repeated.length) + repeated;
      });
    /** What is picked from the line, cut at any byte, each time after the other line. */
    const pickedAfter = (other: string, line: string) =>
      Array.from({ length: line.length + 1 }, (_, length) => {
        pickJson(other, PREPARED);
        return pickJson(line.slice(0, length), PREPARED);
      });
    fc.assert(
      fc.property(earlier, document, (other, line) => {
        agrees(other);
        expect(pickedAfter(other, line)).toEqual(pickedAfter('\0'.repeat(FULL), line));
      }),
      { numRuns: scaled(30) },
    );
  });
});

test.each<[string, Shape]>([
  ['a name of one character', { a: 'scalar' }],
  ['a name that is too long', { ['a'.repeat(32)]: 'scalar' }],
  ['a name outside ASCII', { nämé: 'scalar' }],
  ['a name that is escaped', { 'a"b': 'scalar' }],
  [
    'more than 32 names',
    Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`name${i}`, 'scalar'] as const)),
  ],
])('a shape with %s is refused', (_name, shape) => {
  expect(() => prepareShape(shape)).toThrow('cannot be picked');
});

test('a shape can have 32 names, of 2 to 31 characters', () => {
  const names = Array.from({ length: 32 }, (_, i) => (i < 30 ? `n${i}` : 'x'.repeat(i)));
  const value = Object.fromEntries(names.map((each, i) => [each, i]));
  const prepared = prepareShape(Object.fromEntries(names.map((each) => [each, 'scalar'] as const)));
  expect(pickJson(JSON.stringify(value), prepared)).toEqual(value);
  for (const each of names) expect(pickJson(`{"${each}":1,"${each}":2}`, prepared)).toBeUndefined();
});

test('a line is read the same whether its fields are picked or parsed', () => {
  const lines = fixtureLines('modsecurity3-json.log');
  const values = fc.constantFrom(
    '"Host"',
    '"host"',
    '"x"',
    '{}',
    '[]',
    'null',
    '403',
    '"is_interrupted":true,"x"',
    '"is_interrupted":false,"x"',
    '"secrules_engine":"DetectionOnly","x"',
    '\\"',
    ' ',
    'é',
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...lines),
      fc.array(fc.tuple(fc.nat(), fc.nat(30), values), { maxLength: 3 }),
      (line, changes) => {
        let changed = line;
        for (const [where, removed, inserted] of changes) {
          // At the start of a token.
          const at = changed.indexOf('"', where % changed.length);
          if (at > 16) changed = changed.slice(0, at) + inserted + changed.slice(at + removed);
        }
        const read = (each: string) => {
          const reader = createReader({ format: 'auto' });
          return [...reader.read(each, 0), ...reader.read(each, 0), reader.state()];
        };
        // White space makes the picker give up.
        expect(read(changed)).toEqual(read(changed.replace('{', '{ ')));
      },
    ),
    { numRuns: scaled(100) },
  );
});

test('the records of the engine are picked', () => {
  const shape = prepareShape(MODSECURITY3_SHAPE);
  for (const line of fixtureLines('modsecurity3-json.log')) {
    // Without the symbols of recurring objects.
    const picked: unknown = JSON.parse(JSON.stringify(pickJson(line, shape)));
    expect(picked).toEqual(pruned(JSON.parse(line), MODSECURITY3_SHAPE));
  }
});

describe('recurring objects', () => {
  const RULES = {
    rules: [new Recurring({ id: 'scalar', tags: ['scalar'], inner: { ver: 'scalar' } }, ['match', 'data'])],
  } as const;
  /** The first rule of a line. */
  const pickOne = (json: string, shape: PreparedShape) =>
    asArray(pickJson(`{"rules":[${json}]}`, shape)?.rules)[0];
  const rule = (match: string, id: number, rest = ',"tags":["a"]') =>
    `{"match":${JSON.stringify(match)},"id":${id},"line":"1234567890"${rest}}`;

  test('are picked once for all objects that differ only in the varying strings', () => {
    const shape = prepareShape(RULES);
    const pick = (...rules: string[]) => pickJson(`{"rules":[${rules}]}`, shape)?.rules as unknown[];
    const [first, second] = pick(rule('x', 1), rule('a "longer" one, with \\ and \u0007', 1));
    expect(first).toEqual({ id: 1, tags: ['a'] });
    expect(second).toBe(first);
    expect(pick(rule('x', 2), rule('x', 1), rule('x', 1, ',"tags":["b"]'))).toEqual([
      { id: 2, tags: ['a'] },
      { id: 1, tags: ['a'] },
      { id: 1, tags: ['b'] },
    ]);
  });

  test('agree with JSON.parse, whatever was read before', () => {
    // Pieces from which objects recur, that begin alike, end early, or are not valid.
    const piece = fc.oneof(
      {
        weight: 3,
        arbitrary: fc.constantFrom('"match":"x"', '"data":"\\"}"', '"id":"942100"', '"tags":["a","b"]'),
      },
      fc.constantFrom(
        '"tags":[]',
        '"inner":{"ver":"1","match":"y"}',
        '"inner":{}',
        '"match":1',
        '"data":{"id":1}',
      ),
      fc.constantFrom(
        '"id":942100',
        '"long":"12345678901234567890"',
        '"long":"12345678901234567891"',
        '"x":[{}]',
      ),
      fc.constantFrom(
        '"match":"',
        '"match":"\\x"',
        '"match":"\n"',
        '"data":"é"',
        '"id":',
        '}',
        '"match"',
        '',
      ),
      text.map((each) => `"match":${JSON.stringify(each)}`),
    );
    const object = fc.array(piece, { maxLength: 5 }).map((pieces) => `{${pieces.join()}}`);
    const lines = fc.array(
      fc.tuple(fc.array(object, { maxLength: 4 }), fc.nat(400)).map(([objects, cut]) => {
        const line = `{"rules":[${objects.join()}]}`;
        return cut < line.length && cut % 4 === 0 ? line.slice(0, cut) : line;
      }),
      { minLength: 1, maxLength: 8 },
    );
    const plain = prepareShape({ rules: [RULES.rules[0].fields] });
    const kept = prepareShape(RULES);
    fc.assert(
      fc.property(lines, (all) => {
        const fresh = prepareShape(RULES);
        for (const line of [...all, ...all]) {
          const expected = pickJson(line, plain);
          expect(pickJson(line, fresh)).toEqual(expected);
          expect(pickJson(line, kept)).toEqual(expected);
          if (expected !== undefined) expect(expected).toEqual(pruned(JSON.parse(line), RULES));
        }
      }),
      { numRuns: scaled(500) },
    );
  });

  test('that never recur are picked too, and stop being remembered', () => {
    const shape = prepareShape(RULES);
    const pick = (id: number) => pickOne(rule('x', id), shape);
    for (let id = 0; id < 1_000; id++) expect(pick(id)).toEqual({ id, tags: ['a'] });
    expect(pick(0)).toBe(pick(0));
    expect(pick(999)).not.toBe(pick(999));
  });

  test('are forgotten once they take too much memory, and then remembered again', () => {
    const shape = prepareShape(RULES);
    const long = (id: number) => rule('x', id, `,"tags":["${'a'.repeat(20_000)}"]`);
    const pick = (id: number) => pickOne(long(id), shape);
    const first = pick(0);
    expect(pick(0)).toBe(first);
    for (let id = 1; id < 100; id++) expect(pick(id)).toMatchObject({ id });
    expect(pick(0)).toEqual(first);
    expect(pick(0)).not.toBe(first);
    expect(pick(0)).toBe(pick(0));
  });
});
