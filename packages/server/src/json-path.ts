/** The value at `a.b.c` of parsed JSON, or undefined. Ignores inherited properties such as `constructor`. */
export function valueAt(json: unknown, path: string): unknown {
  let value = json;
  for (const key of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}
