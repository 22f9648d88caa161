/** Connection of a client command: options, prompts for secrets, and the call of the service. */
import { type Client, type ClientOptions, createClient, WafstatError } from '@wafstat/client';
import { sign } from '@wafstat/signer';
import { DEFAULT_NAMES } from '../../config.ts';
import { printable } from '../../printable.ts';
import { type Io, readStdin, UserError } from '../command.ts';
import {
  flag,
  flagOf,
  givenName,
  identifier,
  nameOf,
  option,
  type Source,
  text,
  url,
  type Values,
} from '../options.ts';
import { prompt } from '../prompt.ts';
import { type HttpRequest, httpFetch } from './http-fetch.ts';
import { withProjectId } from './names.ts';
import { type Connection, type Credentials, profilesPath, readProfile } from './profiles.ts';

/** The profile of `configure`, and of queries without a URL and credentials. */
export const PROFILE_DEFAULT = 'default';
const PROFILE_HELP = `use a connection that 'wafstat configure' saved (without --url and credentials: '${PROFILE_DEFAULT}')`;

export const CONNECTION_OPTIONS = {
  profile: option('--profile <name>', PROFILE_HELP, identifier, {
    env: 'WAFSTAT_PROFILE',
  }),
  url: option(
    '--url <url>',
    'URL of the service (set NODE_EXTRA_CA_CERTS to trust a private certificate authority)',
    url,
    { env: 'WAFSTAT_URL' },
  ),
  project: option('--project <project>', 'project, by ID or name', text, { env: 'WAFSTAT_PROJECT' }),
  ak: option('--ak <id>', 'ID of the access key to sign requests with', text, { env: 'WAFSTAT_AK' }),
  skStdin: option('--sk-stdin', 'read the secret access key from standard input (or set WAFSTAT_SK)', flag),
  user: option('--user <name>', 'user to log in as', text),
  domain: option('--domain <name>', "domain of the user, if it is not 'default'", text),
  passwordStdin: option(
    '--password-stdin',
    'read the password from standard input (or set WAFSTAT_PASSWORD)',
    flag,
  ),
  token: option('--token <token>', 'API token (visible in `ps`; prefer WAFSTAT_TOKEN)', text, {
    env: 'WAFSTAT_TOKEN',
  }),
};

type ConnectionOptions = typeof CONNECTION_OPTIONS;
export type ConnectionValues = Values<ConnectionOptions>;
export type ConnectionSource = Source<ConnectionOptions>;

/** Secrets are not options, because `ps` shows options to everyone. */
const SECRETS = {
  ak: { name: 'secret access key', stdin: 'skStdin', variable: 'WAFSTAT_SK' },
  user: { name: 'password', stdin: 'passwordStdin', variable: 'WAFSTAT_PASSWORD' },
} as const;

/** Options that each stand for one way to authenticate. */
export const METHODS = ['ak', 'user', 'token'] as const;
type Method = (typeof METHODS)[number];
const METHOD_CHOICES = '--ak with --sk-stdin, --user with --password-stdin';

const DEPENDENT_OPTIONS = [
  ['skStdin', 'ak'],
  ['passwordStdin', 'user'],
  ['domain', 'user'],
] as const satisfies readonly (readonly [keyof ConnectionOptions, Method])[];

export function connectionProblems(given: ConnectionSource, io: Io): string[] {
  const source = besideProfile(given);
  const usesProfile = source('profile') !== undefined || usesDefaultProfile(source);
  const missing = usesProfile ? [] : missingOptions(source, ', or --profile');
  return [...missing, ...credentialProblems(source, io)];
}

function usesDefaultProfile(source: ConnectionSource): boolean {
  return (['profile', 'url', ...METHODS] as const).every((name) => source(name) === undefined);
}

/** What a connection lacks. `alternative` is another way to give it. */
export function missingOptions(source: ConnectionSource, alternative: string): string[] {
  const problems = (['url', 'project'] as const)
    .filter((name) => source(name) === undefined)
    .map((name) => `${nameOf(CONNECTION_OPTIONS[name])} is required${alternative}`);
  if (methodsOf(source).length === 0)
    problems.push(
      `credentials are required: use ${METHOD_CHOICES}, ${alternative === '' ? 'or ' : ''}--token${alternative}`,
    );
  return problems;
}

export function credentialProblems(source: ConnectionSource, io: Io): string[] {
  const methods = methodsOf(source);
  const problems: string[] = [];
  if (methods.length > 1) {
    const names = methods.map((method) => givenName(CONNECTION_OPTIONS[method], source(method)));
    problems.push(`${names.join(' and ')} are different ways to authenticate: use one of them`);
  }
  for (const method of methods) {
    if (method === 'token' || io.stdin.isTTY) continue;
    const { name, stdin, variable } = SECRETS[method];
    if (source(stdin) === undefined && io.env[variable] === undefined) {
      const [of, from] = [method, stdin].map((option) => flagOf(CONNECTION_OPTIONS[option]));
      problems.push(`${of} requires the ${name}: use ${from} or set ${variable}`);
    }
  }
  for (const [name, method] of DEPENDENT_OPTIONS) {
    if (source(name) !== undefined && !methods.includes(method)) {
      problems.push(`${flagOf(CONNECTION_OPTIONS[name])} requires ${flagOf(CONNECTION_OPTIONS[method])}`);
    }
  }
  return problems;
}

export async function connectionOf(
  values: ConnectionValues,
  given: ConnectionSource,
  io: Io,
): Promise<Connection> {
  const source = besideProfile(given);
  const name = values.profile ?? (usesDefaultProfile(source) ? PROFILE_DEFAULT : undefined);
  const profile = name === undefined ? undefined : await readProfile(profilesPath(io.env), name);
  const url = source('url') === undefined ? profile?.url : values.url;
  const project = source('project') === undefined ? profile?.project : values.project;
  const credentials = (await credentialsOf(values, source, io)) ?? profile?.credentials;
  if (url === undefined || project === undefined || credentials === undefined) {
    throw new Error('connectionProblems accepted an incomplete connection');
  }
  return { url, project, credentials };
}

/** Undefined without credentials. Reads secrets from standard input, so call it once. */
export async function credentialsOf(
  { ak, skStdin, user, domain, passwordStdin, token }: ConnectionValues,
  source: ConnectionSource,
  io: Io,
): Promise<Credentials | undefined> {
  const [method] = methodsOf(source);
  const secret = (owner: keyof typeof SECRETS, fromStdin: boolean | undefined) =>
    readSecret(SECRETS[owner].name, fromStdin ? undefined : io.env[SECRETS[owner].variable], io);
  if (method === 'ak' && ak !== undefined)
    return { kind: 'key', access: ak, secret: await secret(method, skStdin) };
  if (method === 'user' && user !== undefined) {
    const password = await secret(method, passwordStdin);
    return { kind: 'password', user, domain: domain ?? DEFAULT_NAMES.domain, password };
  }
  return method === 'token' && token !== undefined ? { kind: 'token', token } : undefined;
}

/** --profile on the command line wins over the environment, like any other option. */
function besideProfile(source: ConnectionSource): ConnectionSource {
  if (source('profile') !== 'cli') return source;
  return (name) => (source(name) === 'env' ? undefined : source(name));
}

/** A method on the command line wins over those in the environment. */
function methodsOf(source: ConnectionSource): Method[] {
  const onCommandLine = METHODS.filter((method) => source(method) === 'cli');
  return onCommandLine.length > 0 ? onCommandLine : METHODS.filter((method) => source(method) === 'env');
}

/** `given` is from the environment. Without it, prompts on a terminal, and reads all of standard input elsewhere. */
export async function readSecret(name: string, given: string | undefined, io: Io): Promise<string> {
  if (given === undefined && io.stdin.isTTY) return prompt(io, name, { hidden: true });
  const secret = given ?? (await readStdin(io));
  if (secret === '') throw new UserError(`the ${name} is empty`);
  return secret;
}

export interface ServiceResponse<T> {
  result: T;
  /** The last response as received. */
  body: Uint8Array;
  /** How many attacks are kept of those that were counted, if the last response lacks some. */
  kept?: [kept: number, attacks: number] | undefined;
}

/** Failures are UserErrors. */
export async function callService<T>(
  given: Connection,
  { now, stop }: Pick<Io, 'now' | 'stop'>,
  call: (client: Client) => Promise<T>,
): Promise<ServiceResponse<T>> {
  let body: Uint8Array = new Uint8Array();
  let kept: ServiceResponse<T>['kept'];
  const connection = await withProjectId(given, { now, stop });
  const client = createClient({
    url: connection.url,
    projectId: connection.project,
    credentials: clientCredentials(connection, now),
    fetch: async (url, init) => {
      // Commands that use the client send no streams.
      const response = await httpFetch(url, init as HttpRequest);
      body = response.bytes;
      const [, ...counts] = /^(\d+)\/(\d+)$/.exec(response.headers.get('X-Wafstat-Kept') ?? '') ?? [];
      kept = counts.length === 0 ? undefined : [Number(counts[0]), Number(counts[1])];
      return response;
    },
  });
  try {
    const result = await call(client);
    return { result, body, kept };
  } catch (error) {
    if (stop.aborted) throw new UserError('stopped before the response arrived');
    if (error instanceof WafstatError) throw new UserError(serviceErrorMessage(error));
    throw responseProblem(error, connection);
  }
}

/** The client checks the outer form of a response only; the rest shows when it is used. */
export function responseProblem(error: unknown, { url }: Pick<Connection, 'url'>): unknown {
  if (!(error instanceof TypeError || error instanceof RangeError)) return error;
  return new UserError(`the response of ${url} is malformed: ${error.message}`, { cause: error });
}

function clientCredentials({ credentials }: Connection, now: () => number): ClientOptions['credentials'] {
  return credentials.kind === 'key'
    ? { authorize: (request) => sign(request, credentials, { now }) }
    : credentials;
}

/** The message includes the request ID, which identifies the request in the log of the service. */
function serviceErrorMessage({ message, errorCode, requestId }: WafstatError): string {
  const ids = [errorCode, requestId && `request ID ${requestId}`].filter(Boolean).join(', ');
  // Text from the network must not control the terminal.
  const text = printable(message);
  return ids === '' ? text : `${text.replace(/\.$/, '')} (${ids})`;
}
