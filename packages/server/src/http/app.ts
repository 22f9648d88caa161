/** The HTTP application: all its parts, registered by name in one place. */
import { randomBytes } from 'node:crypto';
import { METHODS } from 'node:http';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { pid } from 'node:process';
import type { Writable } from 'node:stream';
import type { SwaggerOptions } from '@fastify/swagger';
import {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
  fastify,
  LogController,
  type RouteOptions,
} from 'fastify';
import { malformed } from '../errors.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote-identity.ts';
import type { Overrides } from '../ingest/categories/classify.ts';
import { type Limits, Pipeline } from '../ingest/pipeline.ts';
import type { LogStream } from '../log-stream.ts';
import { serveInTurn } from '../pipelining.ts';
import { printable } from '../printable.ts';
import type { Store } from '../store/store.ts';
import { alertRoutes, vendorAlertRoute, vendorReportRoutes } from './alert-routes.ts';
import { annotationRoutes } from './annotation-routes.ts';
import { createGuard } from './auth/guard.ts';
import {
  CONNECTIONS_MAX,
  HEADER_BYTES_MAX,
  HEADERS_MAX,
  hasTooManyHeaders,
  limitArrival,
  limitConnections,
  refuseBrokenRequest,
  TIMEOUTS,
  type Timeouts,
} from './connections.ts';
import { consoleRoutes, missingPage } from './console/console-routes.ts';
import type { Installed } from './console/source-routes.ts';
import { allowOrigin } from './cors.ts';
import { eventChangeRoutes } from './event-changes.ts';
import { BODY_BYTES_MAX, sendFailure } from './failures.ts';
import { hostChangeRoutes } from './host-changes.ts';
import { ingestRoutes } from './ingest/routes.ts';
import { accessKeyRoutes } from './keystone/access-key-routes.ts';
import { auditRoutes } from './keystone/audit-routes.ts';
import { changeRoutes } from './keystone/change-routes.ts';
import type { Catalog } from './keystone/keystone.ts';
import { lookupRoutes } from './keystone/lookup-routes.ts';
import { tokenRoutes } from './keystone/token-routes.ts';
import { NO_COMPILERS } from './no-compilers.ts';
import { alsoForSessions, mount, routeRefusals } from './route.ts';
import { noConsoleRoutes, serviceRoutes } from './service-routes.ts';
import { Admission } from './statistics/admission.ts';
import { inventoryRoutes } from './statistics/inventory-routes.ts';
import { contentResponse, type Response } from './statistics/response-cache.ts';
import { type StatisticsOptions, statisticsRoutes } from './statistics/routes.ts';

const TIMEOUT_CHECK_MS = 1_000;
/** Longer than the idle timeout of common load balancers (60 s), so that they close first. */
const KEEP_ALIVE_MS = 75_000;
const NOT_PARSED = Object.freeze({});

interface AppOptions {
  store: Store;
  /** The local identity store, or an external Keystone. */
  identity: Identity | RemoteIdentity;
  now: () => number;
  catalog: Catalog;
  /** The largest push with a token. Signed requests and all other calls have fixed limits. */
  bodyBytesMax: number;
  /** How much memory all caches may use. */
  cacheBytes?: number | undefined;
  /** Requests per second and user; 0 for no limit. */
  rateLimit: number;
  /** Whether reads accept access keys as HTTP Basic credentials. */
  basicReads?: boolean | undefined;
  /** Who may read events. Default: users with the role `reader`. */
  eventsRole?: StatisticsOptions['eventsRole'];
  /** Whether webhooks of alerts may be on private addresses. Default: false. */
  alertAllowPrivate?: boolean | undefined;
  /** Origins of web pages that may call the API. */
  corsOrigins?: readonly string[] | undefined;
  /** The most connections that this process accepts. */
  maxConnections?: number | undefined;
  timeouts?: Partial<Timeouts> | undefined;
  /** Proxies whose forwarding headers are trusted. */
  trustProxy?: string | undefined;
  /** Limits on pushed log lines. */
  limits: Limits;
  overrides?: Overrides | undefined;
  /** How long top lists are kept, for the console; unknown if absent. */
  topListsMs?: number | undefined;
  /** How to start the program, for the commands that the console shows. */
  installed?: Installed | undefined;
  /** Default: a new one. */
  admission?: Admission | undefined;
  logger:
    | false
    | { level: string; stream: LogStream | Writable; hooks?: { streamWrite(line: string): string } };
  /** Whether the log has a line for each response. Default: true, unless the level is higher than that of these lines. */
  logsResponses?: boolean | undefined;
  /** Called after each response, for metrics. */
  onResponse?: ((request: FastifyRequest, reply: FastifyReply) => void) | undefined;
  tls?: { cert: Buffer; key: Buffer } | undefined;
}

export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { store, identity, now, catalog } = options;
  const nextRequestId = createRequestIds();
  const timeouts: Timeouts = { ...TIMEOUTS, ...options.timeouts };
  const serverOptions: FastifyServerOptions = {
    logger: options.logger,
    // `accessLog` writes one line per response instead of Fastify's two.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: nextRequestId,
    // No child logger per request (docs/decisions/0012): our log lines contain the request ID themselves.
    childLoggerFactory: (logger) => logger,
    bodyLimit: BODY_BYTES_MAX,
    trustProxy: options.trustProxy ?? false,
    // Requests on keep-alive connections during shutdown are served.
    return503OnClosing: false,
    // Set per request, because a push may take longer (`limitArrival`).
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionTimeout: timeouts.stalledMs,
    routerOptions: {
      // The routes check IDs, with messages of their own.
      maxParamLength: HEADER_BYTES_MAX,
      ignoreTrailingSlash: true,
      // Routes parse the query if they need it (`queryOf`).
      querystringParser: () => NOT_PARSED,
    },
    schemaController: NO_COMPILERS,
    // No hook runs for a path that cannot be decoded.
    frameworkErrors: (error, request, reply) => {
      limitArrival(request, reply, timeouts);
      return sendFailure(error, request, reply);
    },
    clientErrorHandler: (error, socket) => refuseBrokenRequest(error, socket, nextRequestId(), app.log),
  };
  const httpOptions = {
    maxHeaderSize: HEADER_BYTES_MAX,
    // The `onRequest` hook checks it instead: its response has a body and a request ID.
    requireHostHeader: false,
    headersTimeout: timeouts.headersMs,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
  };
  const app = fastify({
    ...serverOptions,
    ...(options.tls
      ? { https: { ...options.tls, ...httpOptions, minVersion: 'TLSv1.2' } }
      : { http: httpOptions }),
  }) as FastifyInstance;
  limitConnections(app, options.maxConnections ?? CONNECTIONS_MAX);

  // Bodies reach the routes as bytes, because signatures cover them. GET may have a body too.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  for (const method of METHODS) {
    if (method !== 'CONNECT') app.addHttpMethod(method, { hasBody: true, overrideExisting: true });
  }
  // Schemas only document the routes. query.ts parses parameters (docs/decisions/0005), and routes parse bodies after the
  // signature check.
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => JSON.stringify);

  if (identity.kind === 'local') identity.audit.mirror((record) => app.log.info({ audit: record }, 'audit'));
  const guard = createGuard(identity.authenticator, {
    ...options,
    basicReads: options.basicReads ?? true,
  });
  app.decorateRequest('caller', null);
  app.decorateRequest('signedIn', null);
  app.decorateRequest('isAdmin', false);
  app.decorateRequest('pendingSignature', null);
  app.decorate('draining', false);
  app.decorate('stopping', false);
  // Runs for all responses except those of `sendBytes`, which bypasses hooks.
  app.addHook('onSend', (request, reply, payload, done) => {
    reply.header('X-Request-Id', request.id).header('X-Content-Type-Options', 'nosniff');
    if (app.stopping) reply.header('Connection', 'close');
    done(null, payload);
  });
  serveInTurn(app.server, app.routing);
  const refusal = routeRefusals(app, identity.kind);
  const showMissingPage = identity.kind === 'local' ? missingPage() : null;
  const corsOrigins = new Set(options.corsOrigins);
  const warnAboutProxy = proxyWarning(options.trustProxy);
  const checkForwardedFor = options.trustProxy === undefined ? null : forwardedForCheck();
  app.addHook('onRequest', async (request, reply) => {
    checkForwardedFor?.(request);
    limitArrival(request, reply, timeouts);
    if (hasTooManyHeaders(request.raw)) throw malformed(`the request has more than ${HEADERS_MAX} headers`);
    // The connection was reset before Node.js could read the address; nobody receives the response.
    if (request.ip === undefined) throw malformed('the connection is closed');
    const { host, expect = '100-continue' } = request.headers;
    if (!/\b100-continue\b/i.test(expect)) throw malformed('Expect must be 100-continue');
    if (host === undefined && request.raw.httpVersion === '1.1') {
      throw malformed('the request has no Host header');
    }
    // Node.js uses the first one; a proxy in front of it may have used the other.
    if (hasTwoHosts(request.raw.rawHeaders)) {
      throw malformed('the request has more than one Host header: send one');
    }
    warnAboutProxy(request);
    if (corsOrigins.size > 0 && allowOrigin(corsOrigins, request, reply)) return reply;
    await guard.onHeaders(request);
    // Refused here and not in the handler, so that the body is not read.
    if (request.is404) {
      if (showMissingPage?.(request, reply)) return reply;
      throw refusal(request);
    }
  });
  app.addHook('preHandler', guard.onBody);
  if (
    options.logger &&
    options.logsResponses !== false &&
    ['trace', 'debug', 'info'].includes(options.logger.level)
  ) {
    const { stream } = options.logger;
    const write = 'writeAccess' in stream ? stream.writeAccess.bind(stream) : stream.write.bind(stream);
    app.addHook('onResponse', accessLog(write, now));
  }
  const { onResponse } = options;
  if (onResponse) {
    app.addHook('onResponse', (request, reply, done) => {
      onResponse(request, reply);
      done();
    });
  }
  app.setErrorHandler(sendFailure);
  // Hooks run for unknown paths only if there is a handler.
  app.setNotFoundHandler((request) => {
    throw refusal(request);
  });

  const routes: RouteOptions[] = [];
  app.addHook('onRoute', (route) => void routes.push(route));
  let openapi: Promise<Response> | null = null;
  const pipelines = {
    auto: new Pipeline(store, options.limits, now),
    registered: new Pipeline(store, { ...options.limits, hostsMax: 0 }, now),
  };
  const admission = options.admission ?? new Admission();
  const { cacheBytes, eventsRole } = options;
  const { publicUrl } = catalog;
  const { geo } = options.limits;
  const statistics = statisticsRoutes(store, now, admission, { cacheBytes, eventsRole, publicUrl, geo });
  const alertsOf = (project: string) =>
    identity.kind === 'local' ? identity.administration.alertsOf(project) : [];
  const incidentsOf = (alert: string) =>
    identity.kind === 'local' ? identity.alerts.incidentsOf(alert) : [];
  const vendorRoutes = [vendorAlertRoute(alertsOf), ...vendorReportRoutes(alertsOf, incidentsOf)];
  mount(app, alsoForSessions([...statistics, ...inventoryRoutes(store), ...vendorRoutes]));
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    const routes = ingestRoutes({
      pipelines,
      overrides: options.overrides,
      bodyBytesMax: options.bodyBytesMax,
      verifySignature: guard.verifySignature,
      checkAgain: guard.checkAgain,
    });
    mount(scope, routes);
  });
  mount(app, [
    ...(identity.kind === 'local'
      ? [
          ...tokenRoutes(identity, catalog),
          ...alsoForSessions([
            ...accessKeyRoutes(identity),
            ...lookupRoutes(identity, catalog),
            ...changeRoutes(identity, store, catalog, now),
            ...hostChangeRoutes(store, identity),
            ...eventChangeRoutes(store, identity),
            ...auditRoutes(identity, catalog),
            ...annotationRoutes(identity, now),
            ...alertRoutes(identity, options.alertAllowPrivate ?? false),
          ]),
          ...consoleRoutes(identity, store, admission, now, options),
        ]
      : noConsoleRoutes()),
    ...serviceRoutes(store, identity, catalog, () => {
      openapi ??= import('./openapi.ts').then(async ({ openApi }) =>
        contentResponse(await openApi(OPENAPI, routes)),
      );
      return openapi;
    }),
  ]);
  return app;
}

/** `rawHeaders` alternates names and values. */
function hasTwoHosts(rawHeaders: readonly string[]): boolean {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]?.toLowerCase() === 'host') hosts++;
  return hosts > 1;
}

/** Warns once, so that strangers cannot fill the log. Operators of a proxy see it with the first requests. */
function proxyWarning(trustProxy: string | undefined): (request: FastifyRequest) => void {
  let mayWarn = trustProxy === undefined;
  return (request) => {
    if (!mayWarn || request.headers['x-forwarded-for'] === undefined) return;
    mayWarn = false;
    const peer = request.socket.remoteAddress ?? 'the peer';
    request.log.warn(
      `a request from ${peer} has X-Forwarded-For, but --trust-proxy is not set. If ${peer} is a proxy, all clients ` +
        `behind it share one login throttle, and failed logins of one delay the others: start with --trust-proxy ${peer}`,
    );
  };
}

/**
 * Keeps the addresses at the end of X-Forwarded-For, which trusted proxies have added, and drops what is not an address with
 * all before it: audit trail and login throttle get the address of the client, or that of the proxy. Warns once.
 */
function forwardedForCheck(): (request: FastifyRequest) => void {
  let mayWarn = true;
  return (request) => {
    const { headers } = request.raw;
    // Node.js joins repeated headers.
    const given = headers['x-forwarded-for'] as string | undefined;
    if (given === undefined) return;
    const addresses: string[] = [];
    const parts = given.split(',').map((part) => part.trim());
    // Some proxies add the port.
    const bare = (part: string) => /^\[?([^\]]*?)\]?(?::\d+)?$/.exec(part)?.[1] ?? part;
    for (const part of parts.reverse()) {
      const address = isIP(part) ? part : bare(part);
      if (!isIP(address)) break;
      addresses.unshift(address);
    }
    headers['x-forwarded-for'] = addresses.join(', ');
    if (addresses.length === 0) delete headers['x-forwarded-for'];
    if (addresses.length === parts.length || given === '' || !mayWarn) return;
    mayWarn = false;
    const peer = request.socket.remoteAddress ?? 'the peer';
    request.log.warn(
      `X-Forwarded-For of a request from ${peer} is not a list of addresses: ${printable(given.slice(0, 100))}. ` +
        'What comes before its last addresses is ignored; without any, the address of the proxy counts',
    );
  };
}

/**
 * An `onResponse` hook that writes one line per response, in the format of pino. JSON.stringify would take 2.4 us longer,
 * 6% of a cached response.
 */
function accessLog(write: (line: string) => void, now: () => number) {
  const process = `"pid":${pid},"hostname":${JSON.stringify(hostname())}`;
  return (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    const { id, method, caller } = request;
    const url = withoutCredentials(request.url);
    const mark = url.indexOf('?');
    const path = url.slice(0, Math.min(mark === -1 ? url.length : mark, LOGGED_PATH_LENGTH_MAX));
    const ms = Math.round(reply.elapsedTime * 1_000) / 1_000;
    const user = caller === null ? '' : `,"user":${quote(caller.user.name)}`;
    write(
      `{"level":30,"time":${now()},${process},"reqId":"${id}","method":"${method}","path":${quote(path)}` +
        `,"status":${reply.statusCode},"ms":${ms}${user}}\n`,
    );
    done();
  };
}

/** A client may send a whole URL, with a user and a password. */
function withoutCredentials(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/?#]*@/i, '$1');
}

/** Longer than any route. A request line may have 256 KiB; logged in full, such requests would fill the disk. */
const LOGGED_PATH_LENGTH_MAX = 2_048;

/** Text that JSON does not escape. */
const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

function quote(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : printable(JSON.stringify(text));
}

/** IDs that no two processes share: a random prefix and a counter. */
function createRequestIds(): () => string {
  const prefix = randomBytes(8).toString('hex');
  let count = 0;
  return () => `${prefix}${(++count).toString(16).padStart(16, '0')}`;
}

/** The parts of the OpenAPI file that do not come from the schemas of the routes. */
const OPENAPI: SwaggerOptions = {
  openapi: {
    openapi: '3.1.0',
    info: {
      title: 'wafstat',
      version: '1',
      description: 'WAF statistics API: requests and attacks by time, category and host.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'The service that has this file.' }],
    components: {
      securitySchemes: {
        token: { type: 'apiKey', in: 'header', name: 'X-Auth-Token' },
        accessKey: {
          type: 'http',
          scheme: 'basic',
          description:
            'An access key ID as the user and its secret as the password, over HTTPS or from the same machine.',
        },
      },
    },
    security: [{ token: [] }],
    tags: [
      { name: 'statistics', description: 'Queries for requests and attacks over time.' },
      { name: 'events', description: 'Kept attacks.' },
      { name: 'inventory', description: 'Lists of the hosts and log sources of a project.' },
      { name: 'alerts', description: 'Alerts and their incidents.' },
      { name: 'annotations', description: 'What happened at a time, such as a release.' },
      { name: 'ingest', description: 'Pushes of log lines.' },
      { name: 'identity', description: 'Tokens and access keys, compatible with Keystone v3.' },
      { name: 'service', description: 'Health checks of the process.' },
    ],
  },
};
