export type Parameter = string | number | readonly string[] | undefined;

/**
 * `?a=1&b=2&b=3`, a list as a repeated name, or nothing. Encoded by hand, because URLSearchParams writes a space
 * as `+`, which the signature of a request takes for a plus.
 */
export function queryString(parameters: Readonly<Record<string, Parameter>>): string {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => {
    const values = value === undefined ? [] : typeof value === 'object' ? value : [value];
    return values.map((one) => `${name}=${encodeURIComponent(one)}`);
  });
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}
