/** Projects and hosts by name: the API takes IDs. */
import type { Client, Host } from '@wafstat/client';
import { sign } from '@wafstat/signer';
import { ID_PATTERN, normalHostname } from '../../event.ts';
import { valueAt } from '../../json-path.ts';
import { printable } from '../../printable.ts';
import { type Io, UserError } from '../command.ts';
import { type HttpResponse, httpFetch } from './http-fetch.ts';
import type { Connection, Credentials } from './profiles.ts';

/** IDs of projects, and those of hosts unless they were chosen by hand. */
const GENERATED_ID = /^[0-9a-f]{32}$/;
const TIMEOUT_MS = 60_000;

type ClockAndStop = Pick<Io, 'now' | 'stop'>;

/** The connection with the project ID in place of the project name. */
export async function withProjectId(connection: Connection, io: ClockAndStop): Promise<Connection> {
  const { project, credentials } = connection;
  if (GENERATED_ID.test(project)) return connection;
  return credentials.kind === 'password'
    ? logIn(connection, credentials, io)
    : findProject(connection, credentials, io);
}

type Password = Extract<Credentials, { kind: 'password' }>;

/** Requests a token for the project by its name. The response has its ID. */
async function logIn(
  { url, project }: Connection,
  credentials: Password,
  io: ClockAndStop,
): Promise<Connection> {
  const { user, password, domain } = credentials;
  const auth = {
    identity: {
      methods: ['password'],
      password: { user: { name: user, password, domain: { name: domain } } },
    },
    scope: { project: { name: project, domain: { name: domain } } },
  };
  const request = {
    method: 'POST',
    url: `${url}/v3/auth/tokens?nocatalog`,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify({ auth }),
  };
  const response = await send(request, io);
  const id = valueAt(response.body, 'token.project.id');
  const token = response.headers.get('X-Subject-Token');
  if (response.status === 201 && typeof id === 'string' && token !== null) {
    return { url, project: id, credentials: { kind: 'token', token } };
  }
  throw new UserError(
    `cannot log in to the project '${project}' of the domain '${domain}': ${errorMessage(response)}`,
  );
}

/** A service with a Keystone does not list the caller's projects: the name is taken as an ID. */
async function findProject(
  connection: Connection,
  credentials: Exclude<Credentials, Password>,
  io: ClockAndStop,
): Promise<Connection> {
  const { url, project } = connection;
  const request = {
    method: 'GET',
    url: `${url}/v3/auth/projects?name=${encodeURIComponent(project)}`,
    headers: { Accept: 'application/json' },
  };
  const authorization =
    credentials.kind === 'key'
      ? await sign(request, credentials, { now: io.now })
      : { 'X-Auth-Token': credentials.token };
  const response = await send({ ...request, headers: { ...request.headers, ...authorization } }, io);
  const projects = valueAt(response.body, 'projects');
  if (response.status !== 200 || !Array.isArray(projects)) {
    if (ID_PATTERN.test(project)) return connection;
    throw new UserError(`cannot find the project '${project}': ${errorMessage(response)}`);
  }
  // A proxy may send this call to a Keystone, which ignores the filter.
  const ids = projects.flatMap((one: unknown) => {
    const id = valueAt(one, 'id');
    const isMeant = id === project || valueAt(one, 'name') === project;
    return isMeant && typeof id === 'string' ? [id] : [];
  });
  const [id] = ids;
  if (id === undefined) throw new UserError(`there is no project '${project}' in which you have a role`);
  if (ids.length > 1) {
    throw new UserError(
      `several domains have a project '${project}': use one of the IDs ${ids.toSorted().join(', ')}`,
    );
  }
  return { ...connection, project: id };
}

interface IdentityResponse {
  status: number;
  headers: HttpResponse['headers'];
  /** Undefined if it is not JSON. */
  body: unknown;
}

async function send(
  { url, ...request }: { method: string; url: string; headers: Record<string, string>; body?: string },
  { stop }: ClockAndStop,
): Promise<IdentityResponse> {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const response = await httpFetch(url, { ...request, signal: AbortSignal.any([stop, timeout]) });
    const text = await response.text();
    return { status: response.status, headers: response.headers, body: parseJson(text) };
  } catch (error) {
    if (stop.aborted) throw new UserError('stopped before the response arrived');
    const { message, cause } = error as Error;
    const reason = timeout.aborted ? `none within ${TIMEOUT_MS / 1000} seconds` : causeOf(cause) || message;
    throw new UserError(
      `${request.method} ${url.replace(/\?.*/, '')} got no response: ${printable(reason)}.`,
    );
  }
}

/** Node.js says `fetch failed` and puts the reason into the cause. */
function causeOf(cause: unknown): string {
  return String(valueAt(cause, 'message') || valueAt(cause, 'code') || '');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function errorMessage({ status, body }: IdentityResponse): string {
  const message = valueAt(body, 'error.message') ?? valueAt(body, 'error_msg');
  return typeof message === 'string' ? printable(message) : `the service returned status ${status}`;
}

/** The host with an ID or name. */
export type FindHost = (value: string) => Promise<Host>;

/** Reads the hosts of the project when it is first called, once. */
export function hostFinder(client: Pick<Client, 'hosts'>, signal: AbortSignal): FindHost {
  let reading: ReturnType<typeof readHosts> | undefined;
  return async (value) => {
    reading ??= readHosts(client, signal);
    const { byId, byName } = await reading;
    // An ID takes precedence: anyone who sends a Host header can register a name that equals it.
    const host = byId.get(value) ?? byName.get(normalHostname(value) ?? value);
    if (host !== undefined) return host;
    throw new UserError(`there is no host '${value}' in this project: run 'wafstat hosts' to list the hosts`);
  };
}

async function readHosts(client: Pick<Client, 'hosts'>, signal: AbortSignal) {
  const byName = new Map<string, Host>();
  const byId = new Map<string, Host>();
  for await (const host of client.hosts({ signal })) {
    byName.set(host.hostname, host);
    byId.set(host.id, host);
  }
  return { byId, byName };
}

/** The IDs of hosts that are given by ID or name. Generated IDs are not checked, which saves a request. */
export async function hostIds(
  find: FindHost,
  given: readonly string[] | undefined,
): Promise<string[] | undefined> {
  const ids: string[] = [];
  for (const value of given ?? []) ids.push(GENERATED_ID.test(value) ? value : (await find(value)).id);
  return given && ids;
}
