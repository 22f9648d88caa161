/** The HTTP application: everything it consists of, by name, in one place. */
import { METHODS } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import swagger from '@fastify/swagger';
import {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
  fastify,
  LogController,
} from 'fastify';
import { ApiError } from '../errors.ts';
import type { Identity } from '../identity/identity.ts';
import type { RemoteIdentity } from '../identity/remote/remote-identity.ts';
import type { Overrides } from '../ingest/categories/classify.ts';
import { type Limits, Pipeline } from '../ingest/pipeline.ts';
import type { LogStream } from '../log-stream.ts';
import type { Store } from '../store/store.ts';
import { createAccessLog } from './access-log.ts';
import { createGuard } from './auth/guard.ts';
import { consoleRoutes } from './console/console-routes.ts';
import { BODY_BYTES_MAX, failureBody, sendFailure } from './failures.ts';
import { ingestRoutes } from './ingest/routes.ts';
import { accessKeyRoutes } from './keystone/access-key-routes.ts';
import { mountForwarding } from './keystone/forward-routes.ts';
import type { Catalog } from './keystone/keystone.ts';
import { lookupRoutes } from './keystone/lookup-routes.ts';
import { tokenRoutes } from './keystone/token-routes.ts';
import { OPENAPI } from './openapi.ts';
import { requestIds } from './request-ids.ts';
import { alsoForSessions, mount } from './route.ts';
import { consoleElsewhereRoutes, serviceRoutes } from './service-routes.ts';
import { inventoryRoutes } from './statistics/inventory.ts';
import { statisticsRoutes } from './statistics/routes.ts';

/** 1,000 host IDs of 64 characters are 71 KB of URL; this leaves room for three times that. */
const HEADER_BYTES_MAX = 262_144;
/** The longest a client may take to send a request, unless it is a push (uploads.ts). */
const REQUEST_TIMEOUT_MS = 60_000;
/** How long the rest of a push is read, and ignored, once the response is sent: the client may read it only then. */
const IGNORED_BODY_MS = 5_000;
/** The longest a client may take to send the headers. */
const HEADERS_TIMEOUT_MS = 10_000;
const TIMEOUT_CHECK_MS = 1_000;
/** A connection on which nothing moves during a request, as when the client does not read the response, is closed. */
const STALLED_MS = 60_000;
/** Some 30 KB of memory each, in all 300 MB. */
const CONNECTIONS_MAX = 10_000;
/** Refused connections are logged at most this often. */
const REFUSED_LOG_MS = 60_000;
/** Longer than the idle time of common load balancers (60 s), so that it is they who close first. */
const KEEP_ALIVE_MS = 75_000;
const NOT_PARSED = Object.freeze({});

export interface AppOptions {
  store: Store;
  /** In a file of its own, or kept by another service. */
  identity: Identity | RemoteIdentity;
  now: () => number;
  catalog: Catalog;
  /** The largest push with a token; signed requests, and all other calls, have limits of their own. */
  bodyBytesMax: number;
  /** Requests per second for each user, 0 for no limit. */
  rateLimit: number;
  /** Connections at once, of one process. */
  maxConnections?: number | undefined;
  timeouts?: Partial<Timeouts> | undefined;
  /** Proxies whose forwarding headers are believed. */
  trustProxy?: string | undefined;
  /** For log lines that come by HTTP. */
  limits: Limits;
  overrides?: Overrides | undefined;
  logger:
    | false
    | { level: string; stream: LogStream | Writable; hooks?: { streamWrite(line: string): string } };
  tls?: { cert: Buffer; key: Buffer } | undefined;
}

interface Timeouts {
  headersMs: number;
  stalledMs: number;
  requestMs: number;
  ignoredBodyMs: number;
}

export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { store, identity, now, catalog } = options;
  const nextRequestId = requestIds();
  const timeouts: Timeouts = {
    headersMs: HEADERS_TIMEOUT_MS,
    stalledMs: STALLED_MS,
    requestMs: REQUEST_TIMEOUT_MS,
    ignoredBodyMs: IGNORED_BODY_MS,
    ...options.timeouts,
  };
  const serverOptions: FastifyServerOptions = {
    logger: options.logger,
    // One line for each answer is written below, instead of Fastify's two.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: nextRequestId,
    // None for each request (0012): our own lines, one for each answer and each failure, name the request themselves.
    childLoggerFactory: (logger) => logger,
    bodyLimit: BODY_BYTES_MAX,
    trustProxy: options.trustProxy ?? false,
    // A request that comes while the service stops is answered like any other; its connection is the last to close.
    return503OnClosing: false,
    // A push may take longer: see `limitArrival`.
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionTimeout: timeouts.stalledMs,
    // A path segment may be as long as a request; whether it is an ID is for the route to say.
    routerOptions: {
      maxParamLength: HEADER_BYTES_MAX,
      ignoreTrailingSlash: true,
      // Routes parse it when they need it (`queryOf`).
      querystringParser: () => NOT_PARSED,
    },
    frameworkErrors: sendFailure,
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket, nextRequestId(), app.log),
  };
  const httpOptions = {
    maxHeaderSize: HEADER_BYTES_MAX,
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

  // Bodies reach the routes as they came: a signature covers the bytes, and GET may have a body too.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  for (const method of METHODS) {
    if (method !== 'CONNECT') app.addHttpMethod(method, { hasBody: true, overrideExisting: true });
  }
  // Parameters are parsed in query.ts, whose errors name what was wrong; the schemas document them.
  app.setValidatorCompiler(() => () => true);

  if (identity.kind === 'local') identity.audit.mirror((record) => app.log.info({ audit: record }, 'audit'));
  const guard = createGuard(identity.authenticator, options);
  app.decorateRequest('caller', null);
  app.decorateRequest('pendingSignature', null);
  app.decorate('draining', false);
  app.decorate('stopping', false);
  // For all replies but those of sendBytes, which come by no hook.
  app.addHook('onSend', (request, reply, payload, done) => {
    reply.header('X-Request-Id', request.id).header('X-Content-Type-Options', 'nosniff');
    if (app.stopping) reply.header('Connection', 'close');
    done(null, payload);
  });
  app.server.on('checkExpectation', (request, response) => {
    request.resume();
    const body = failureBody(new ApiError('WAF.1001', 'Expect must be 100-continue'), false);
    const headers = {
      'Content-Type': 'application/json; charset=utf-8',
      'X-Content-Type-Options': 'nosniff',
      'X-Request-Id': nextRequestId(),
    };
    response.writeHead(400, { ...headers, 'Content-Length': Buffer.byteLength(body) }).end(body);
  });
  const warnOfProxy = proxyWarning(options.trustProxy);
  app.addHook(
    'onRequest',
    unawaited((request, reply) => {
      limitArrival(request, reply, app, timeouts);
      // Ours to refuse, because Node would do it without a body or a request ID.
      if (request.headers.host === undefined && request.raw.httpVersion === '1.1') {
        throw new ApiError('WAF.1001', 'the request has no Host header');
      }
      // Node keeps the first one; a proxy in front may have believed the other.
      if (hasTwoHosts(request.raw.rawHeaders))
        throw new ApiError('WAF.1001', 'the request has more than one Host header: send one');
      warnOfProxy(request);
      return guard.onHeaders(request);
    }),
  );
  app.addHook('preHandler', unawaited(guard.onBody));
  if (options.logger && ['trace', 'debug', 'info'].includes(options.logger.level)) {
    const { stream } = options.logger;
    const write = 'writeAccess' in stream ? stream.writeAccess.bind(stream) : stream.write.bind(stream);
    app.addHook('onResponse', createAccessLog(write, now));
  }
  app.setErrorHandler(sendFailure);
  app.setNotFoundHandler((request) => {
    throw new ApiError('WAF.4000', `there is no path ${request.url.split('?', 1)[0]?.slice(0, 200)}`);
  });

  await app.register(swagger, OPENAPI);
  const pipelines = {
    auto: new Pipeline(store, options.limits, now),
    registered: new Pipeline(store, { ...options.limits, hostsMax: 0 }, now),
  };
  mount(app, alsoForSessions([...statisticsRoutes(store, now), ...inventoryRoutes(store)]));
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    const routes = ingestRoutes({
      pipelines,
      overrides: options.overrides,
      bodyBytesMax: options.bodyBytesMax,
      verifySignature: async (request, body) => guard.verifySignature(request, body),
    });
    mount(scope, routes);
  });
  mount(app, [
    ...(identity.kind === 'local'
      ? [
          ...tokenRoutes(identity, catalog),
          ...accessKeyRoutes(identity),
          ...lookupRoutes(identity),
          ...consoleRoutes(identity, store, now),
        ]
      : consoleElsewhereRoutes()),
    ...serviceRoutes(store, identity, () => app.swagger()),
  ]);
  if (identity.kind === 'remote') mountForwarding(app, identity);
  return app;
}

/** A hook that is awaited only when it answers a promise: most requests have nothing to wait for (0012). */
function unawaited(action: (request: FastifyRequest, reply: FastifyReply) => void | Promise<void>) {
  return (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void => {
    let pending: void | Promise<void>;
    try {
      pending = action(request, reply);
    } catch (error) {
      done(error as Error);
      return;
    }
    // Outside of the try: what comes after this hook is not its failure.
    if (pending === undefined) done();
    else pending.then(() => done(), done);
  };
}

/** A request that is not a push must arrive in time, and the rest of a body after its response. */
function limitArrival(
  { raw, routeOptions }: FastifyRequest,
  reply: FastifyReply,
  app: FastifyInstance,
  { requestMs, ignoredBodyMs }: Timeouts,
): void {
  const { headers, socket } = raw;
  if (headers['transfer-encoding'] === undefined && (headers['content-length'] ?? '0') === '0') return;
  let timer: NodeJS.Timeout | undefined;
  const limit = (timeoutMs: number, end: () => void) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!raw.complete) end();
    }, timeoutMs);
    timer.unref();
  };
  if (!routeOptions.config.streamsBody) {
    const error = Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
    limit(requestMs, () => app.server.emit('clientError', error, socket));
  }
  reply.raw.once('finish', () => {
    if (raw.complete) return;
    raw.resume();
    limit(ignoredBodyMs, () => raw.destroy());
  });
  raw.once('close', () => clearTimeout(timer));
}

/** Connections over the limit are closed at once, which costs less than anything that could be said on them. */
function limitConnections(app: FastifyInstance, max: number): void {
  let refused = 0;
  let loggedAt = Number.NEGATIVE_INFINITY;
  app.server.maxConnections = max;
  app.server.on('drop', () => {
    refused++;
    if (performance.now() - loggedAt < REFUSED_LOG_MS) return;
    app.log.warn(`refused ${refused} connections: ${max} are open (--max-connections)`);
    refused = 0;
    loggedAt = performance.now();
  });
}

function hasTwoHosts(rawHeaders: readonly string[]): boolean {
  let found = false;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (name.length !== 4 || name.toLowerCase() !== 'host') continue;
    if (found) return true;
    found = true;
  }
  return false;
}

/** Warns once: whoever runs a proxy sees it with the first requests, and strangers cannot fill the log with it. */
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

/** What is not HTTP, or too long to be parsed, never becomes a request; it gets an answer all the same. */
function answerBrokenRequest(
  error: Error & { code?: string },
  socket: Socket,
  requestId: string,
  log: FastifyBaseLogger,
): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const message =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? `the request line and headers are longer than ${HEADER_BYTES_MAX} bytes`
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? `the request took too long to arrive: headers have ${HEADERS_TIMEOUT_MS / 1_000} s, all of it ${REQUEST_TIMEOUT_MS / 1_000} s`
        : 'the request is not valid HTTP';
  log.info({ reqId: requestId, status: 400 }, message);
  const body = failureBody(new ApiError('WAF.1001', message), false);
  // A client that does not close its side must not keep the descriptor.
  socket.once('finish', () => socket.destroy());
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: ${requestId}\r\n` +
      'X-Content-Type-Options: nosniff\r\n' +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
