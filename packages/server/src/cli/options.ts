/** Options of commands: declaration, parsing, and one report of everything that is wrong with them. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { parseTime } from '../ingest/formats/timestamps.ts';

export interface Option<T> {
  /** The form on the command line. Without a `<value>` the option is a switch. */
  flags: string;
  description: string;
  /** Throws an Error whose message says what the value must be. */
  parse(text: string): T;
  /** Environment variable that is read if the option is not on the command line. */
  env?: string;
  default?: string;
  required?: boolean;
  /** Heading in the help text. */
  group?: string;
}

export type Options = Readonly<Record<string, Option<unknown>>>;

/** Options with a default and required options always have a value. */
export type Values<O extends Options> = {
  -readonly [K in keyof O]: O[K] extends { default: string } | { required: true }
    ? ReturnType<O[K]['parse']>
    : ReturnType<O[K]['parse']> | undefined;
};

/** Where the value of an option comes from; undefined if it is the default, or if there is none. */
export type Source<O extends Options> = (name: keyof O & string) => 'cli' | 'env' | undefined;

/** The text of an option on the command line or in the environment; undefined if there is none. */
export type Given = (name: string) => string | undefined;

export type Environment = Readonly<Record<string, string | undefined>>;

export function option<T, const E extends Partial<Option<T>>>(
  flags: string,
  description: string,
  parse: (text: string) => T,
  extras?: E,
): Pick<Option<T>, 'flags' | 'description' | 'parse'> & E {
  // Without extras, E has no properties.
  return { flags, description, parse, ...(extras as E) };
}

export function required<O extends Option<unknown>>(optional: O): O & { required: true } {
  return { ...optional, required: true };
}

/** Invalid options: all problems, one sentence each. */
export class UsageError extends Error {
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** The command line wins over the environment, the environment over the default. `check` sees the valid values. */
export function readOptions<O extends Options>(
  options: O,
  onCommandLine: (name: keyof O & string) => string | undefined,
  env: Environment,
  check: (values: Partial<Values<O>>) => readonly string[] = () => [],
): Values<O> {
  const source = sourceOf(options, onCommandLine, env);
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [name, { env: variable = '', parse, ...spec }] of Object.entries(options)) {
    const text = onCommandLine(name) ?? env[variable] ?? spec.default;
    if (text === undefined) {
      if (spec.required) problems.push(`${nameOf({ ...spec, env: variable })} is required`);
      continue;
    }
    try {
      values[name] = parse(text);
    } catch (error) {
      problems.push(
        `${givenName({ ...spec, env: variable }, source(name))} is '${shownValue(spec, text)}', but ${(error as Error).message}`,
      );
    }
  }
  problems.push(...check(values as Partial<Values<O>>));
  if (problems.length > 0) throw new UsageError(problems);
  return values as Values<O>;
}

export function sourceOf<O extends Options>(
  options: O,
  onCommandLine: (name: keyof O & string) => string | undefined,
  env: Environment,
): Source<O> {
  return (name) => {
    if (onCommandLine(name) !== undefined) return 'cli';
    return env[options[name]?.env ?? ''] === undefined ? undefined : 'env';
  };
}

/** Returns `--tls-cert` for `--tls-cert <file>`. */
export function flagOf({ flags }: { flags: string }): string {
  return flags.split(' ', 1)[0] ?? '';
}

/** `--data (or WAFSTAT_DATA)`, for messages. */
export function nameOf(named: { flags: string; env?: string }): string {
  return named.env ? `${flagOf(named)} (or ${named.env})` : flagOf(named);
}

/** Where a value comes from: the variable, if it is from the environment. */
export function givenName(named: { flags: string; env?: string }, source: 'cli' | 'env' | undefined): string {
  return source === 'env' && named.env ? named.env : flagOf(named);
}

/** The query of a URL may contain a token. */
function shownValue({ flags }: { flags: string }, value: string): string {
  const shown = withoutPassword(value.replaceAll(REPEATED, ','));
  return /<urls?>$/.test(flags) ? shown.replace(/[?#].*$/s, '?***') : shown;
}

/** The value as it may appear on terminals and in logs. */
export function withoutPassword(value: string): string {
  return value
    .replace(/^([a-z]+:\/\/)?.*@/is, '$1***@')
    .replace(/\bpassword\s*=('[^']*'|[^&\s]*)/gi, 'password=***');
}

export function text(value: string): string {
  if (value.length === 0) throw new Error('must not be empty');
  return value;
}

export function flag(value: string): boolean {
  if (value === 'true' || value === '1') return true;
  if (value === 'false' || value === '0') return false;
  throw new Error('must be true or false');
}

/** Separates the values of an option that is repeated: they may contain commas. */
export const REPEATED = '\n';

/** The values of an option that can be repeated. Commas separate them, too, unless they may contain commas. */
export function listOfValues<T>(parse: (value: string) => T, separators: RegExp = /[,\n]/) {
  return (values: string): T[] => values.split(separators).map((value) => parse(value.trim()));
}

export function identifier(value: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(value)) throw new Error('must be 1 to 64 letters, digits, _ or -');
  return value;
}

/** Whether it is an IP address, or a range like 10.0.0.0/8. */
export function isNetwork(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const bitsMax = isIP(address) === 4 ? 32 : 128;
  const fits = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax);
  return isIP(address) !== 0 && fits && more.length === 0;
}

export function oneOf<T extends string>(...allowed: T[]) {
  return (value: string): T => {
    const found = allowed.find((candidate) => candidate === value);
    if (found === undefined) throw new Error(`must be ${listOf(allowed)}`);
    return found;
  };
}

/** `one of a, b, c`, for messages. */
export function listOf(allowed: readonly string[]): string {
  return allowed.length === 1 ? String(allowed[0]) : `one of ${allowed.join(', ')}`;
}

/** `unit`: for the message, if the name of the option does not say it. */
export function integer(min: number, max: number, unit = '') {
  return (value: string): number => {
    const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max))
      throw new Error(`must be a whole number from ${min} to ${max}${unit && ` ${unit}`}`);
    return number;
  };
}

const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds, from values like `36h`; `min` and `max` are such values. */
export function duration(units: string, min: string, max: string, examples: string) {
  const msOf = (value: string) => {
    const [, number, unit = ''] = /^(\d{1,7})([a-z])$/.exec(value) ?? [];
    return units.includes(unit) ? Number(number) * (UNIT_MS[unit] ?? Number.NaN) : Number.NaN;
  };
  return (value: string): number => {
    const ms = msOf(value);
    if (!(ms >= msOf(min) && ms <= msOf(max)))
      throw new Error(`must be a time like ${examples}, from ${min} to ${max}`);
    return ms;
  };
}

/** Later times have no ISO 8601 form that other programs read. */
const YEAR_10000 = Date.UTC(10_000, 0);

export function timestamp(value: string): number {
  const time = parseTime(/^\d+$/.test(value) ? Number(value) : value);
  if (time === null || time >= YEAR_10000) {
    throw new Error(
      'must be milliseconds since the epoch, or a time with its offset: 2026-07-01T12:00:00+08:00',
    );
  }
  return time;
}

const URL_EXAMPLE = 'https://waf.example.com';

export function url(value: string): string {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol))
    throw new Error(`must be a URL like ${URL_EXAMPLE}`);
  if (/[?#]/.test(value)) throw new Error(`must be a URL without '?' and '#', like ${URL_EXAMPLE}`);
  if (parsed.username || parsed.password)
    throw new Error('must not contain a user or password, because `ps` shows it to everyone');
  return value.replace(/\/+$/, '');
}

export function file(path: string): string {
  try {
    readFileSync(text(path));
  } catch (error) {
    throw new Error(`cannot be read (${(error as NodeJS.ErrnoException).code ?? 'not a file'})`);
  }
  return path;
}

export const JSON_OUTPUT = option('--json', 'print the result as JSON', flag);
export const PROJECT = option('--project <project>', 'project, by ID or name', text);
