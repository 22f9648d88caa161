/** The URL of a PostgreSQL database, with one or more servers. */

export interface DatabaseUrl {
  servers: readonly { host: string; port: number }[];
  database: string;
  user: string;
  /** Null if it is not in the URL. */
  password: string | null;
  tls: 'verify' | 'off' | 'default';
  /** File with the certificates to trust instead of those of Node.js. */
  caFile: string | null;
}

const PARAMETERS = ['target_session_attrs', 'sslmode', 'sslrootcert', 'host'];
const DEFAULT_PORT = 5432;

/** Throws an Error whose message says what the URL must be. */
export function parseDatabaseUrl(text: string): DatabaseUrl {
  // Not `new URL`: it rejects several hosts.
  const match =
    /^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?@]*)(?:\/([^/?]*))?(?:\?(.*))?$/.exec(text);
  if (match === null) {
    throw new Error('must be a URL like postgres://wafstat@db1.example,db2.example:5432/wafstat');
  }
  const [, user = '', password, hosts = '', database = '', query] = match;
  // Checked before messages quote parts of the URL: a '?' in the password cuts it in the wrong place.
  if (user === '' || database === '') throw new Error('must have a user and a database');
  const parameters = new URLSearchParams(query);
  for (const name of parameters.keys()) {
    if (!PARAMETERS.includes(name)) {
      throw new Error(`has the unknown parameter ${name}: only ${PARAMETERS.join(', ')} are allowed`);
    }
  }
  const socket = parameters.get('host');
  const attributes = parameters.get('target_session_attrs') ?? 'primary';
  if (!['read-write', 'primary'].includes(attributes)) {
    throw new Error(
      `has target_session_attrs=${attributes}: must be read-write or primary, because only the primary is used`,
    );
  }
  const servers = (hosts === '' && socket !== null ? [socket] : hosts.split(',')).map(parseServer);
  return {
    servers,
    database: decode(database),
    user: decode(user),
    password: password === undefined ? null : decode(password),
    tls: parseTls(parameters.get('sslmode')),
    caFile: parameters.get('sslrootcert'),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("has a '%' that does not begin the code of a character: write it as %25");
  }
}

function parseServer(text: string): { host: string; port: number } {
  if (text.startsWith('/')) return { host: text, port: DEFAULT_PORT };
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(decode(text));
  const port = Number(match?.[3] ?? DEFAULT_PORT);
  if (match === null || port < 1 || port > 65_535) {
    throw new Error(
      `has the server '${text}': must be HOST or HOST:PORT, or ?host=/directory for a Unix socket`,
    );
  }
  return { host: match[1] ?? match[2] ?? '', port };
}

/** Modes that encrypt without verifying the server would only look safe. */
function parseTls(mode: string | null): DatabaseUrl['tls'] {
  if (mode === null) return 'default';
  if (mode === 'verify-full') return 'verify';
  if (mode === 'disable') return 'off';
  throw new Error(`has sslmode=${mode}: must be verify-full or disable`);
}

/** For messages: the servers and the database, without user and password. */
export function describeUrl({ servers, database }: DatabaseUrl): string {
  const names = servers.map(({ host, port }) => (host.startsWith('/') ? host : `${host}:${port}`));
  return `${names.join(',')}/${database}`;
}
