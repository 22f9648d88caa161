/**
 * The one place where a value becomes SQL text. Statements name their values as `{name:Type}`, which current servers
 * bind themselves; for those that cannot (before 20.x over HTTP), this writes the value as a literal of its type.
 */

export type Value = string | number | readonly string[] | readonly number[];
export type Values = Readonly<Record<string, Value>>;

const RENDERERS: Readonly<Record<string, (value: Value) => string>> = {
  String: quoted,
  UInt32: (value) => wholeNumber(value, 0xffff_ffff),
  UInt64: (value) => wholeNumber(value, Number.MAX_SAFE_INTEGER),
};

/** The statement with every `{name:Type}` in it replaced. A value that is not of its type is a mistake of ours. */
export function renderLiterals(sql: string, values: Values): string {
  return sql.replace(/\{(\w+):(\w+)(?:\((\w+)\))?\}/g, (_, name: string, type: string, inner?: string) => {
    const value = values[name];
    if (value === undefined) throw new TypeError(`the statement needs a value for ${name}`);
    if (inner === undefined) return `CAST(${rendererOf(type)(value)} AS ${type})`;
    if (type !== 'Array' || !Array.isArray(value)) throw new TypeError(`${name} is not of type ${type}`);
    const items = (value as Value[]).map(rendererOf(inner));
    return `CAST([${items.join(',')}] AS Array(${inner}))`;
  });
}

function rendererOf(type: string): (value: Value) => string {
  const renderer = RENDERERS[type];
  if (renderer === undefined) throw new TypeError(`there are no values of type ${type}`);
  return renderer;
}

/** Between the quotes, only these three mean something else than themselves. */
function quoted(value: Value): string {
  if (typeof value !== 'string') throw new TypeError(`${value} is not a string`);
  const escaped = value.replace(/[\\'\0]/g, (character) => (character === '\0' ? '\\0' : `\\${character}`));
  return `'${escaped}'`;
}

function wholeNumber(value: Value, max: number): string {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > max) {
    throw new TypeError(`${value} is not a whole number from 0 to ${max}`);
  }
  return String(value);
}
