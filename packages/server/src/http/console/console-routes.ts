/** Everything that the console needs beyond the API: its files, and routes that accept only its sessions. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RequestIdentity } from '../../identity/identity.ts';
import type { Store } from '../../store/store.ts';
import { annotationItems } from '../annotation-routes.ts';
import { notCached, type Route } from '../route.ts';
import { type ContentCoding, contentCoding } from '../send.ts';
import type { Admission } from '../statistics/admission.ts';
import { figuresRoute } from './figures-route.ts';
import { sessionRoutes } from './session-routes.ts';
import { type Installed, sourceRoutes } from './source-routes.ts';

/** The relative path is the same from the sources and from the compiled code. */
const DIRECTORY = fileURLToPath(new URL('../../../dist/web/', import.meta.url));

/** All pages are the same file; its script shows the page of the URL. */
const PAGES = [
  '/console',
  '/console/overview',
  '/console/hosts',
  '/console/sources',
  '/console/tuning',
  '/console/alerts',
  '/console/credentials',
  '/console/admin',
  '/console/audit',
];

const SECURITY_HEADERS = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    "font-src 'self'",
    "manifest-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'self'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'X-Frame-Options': 'DENY',
};

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

interface StaticFile {
  type: string;
  cache: string;
  plain: Buffer;
  compressed: ReadonlyMap<ContentCoding, Buffer>;
}

export function consoleRoutes(
  identity: RequestIdentity,
  store: Store,
  admission: Admission,
  now: () => number,
  {
    installed,
    topListsMs,
    limits,
  }: { installed?: Installed | undefined; topListsMs?: number | undefined; limits: { geo?: unknown } },
): Route[] {
  const api = [
    ...sessionRoutes(identity, now, { topListsMs, hasGeoip: limits.geo !== undefined }),
    figuresRoute(store, admission, now, (project, range) =>
      annotationItems(identity.administration, project, range),
    ),
    ...sourceRoutes(identity, store, now, installed),
  ];
  return [...fileRoutes(), ...api.map(notCached)];
}

/** Serves unknown console paths: its script says that there is no such page. Unknown calls and files get the usual 404. */
export function missingPage(directory = DIRECTORY) {
  const page = readPage(directory);
  return ({ method, url }: FastifyRequest, reply: FastifyReply): boolean => {
    const isPage = method === 'GET' && /^\/console\/(?!(?:api|assets)(?:[/?]|$))/.test(url);
    if (isPage)
      reply
        .code(404)
        .headers(SECURITY_HEADERS)
        .header('Cache-Control', page.cache)
        .type(page.type)
        .send(page.plain);
    return isPage;
  };
}

function readPage(directory: string): StaticFile {
  return existsSync(join(directory, 'index.html'))
    ? readFile(directory, 'index.html', 'no-cache')
    : NOT_BUILT;
}

/** The files are read once and served from memory, so that no other path can be requested. */
export function fileRoutes(directory = DIRECTORY): Route[] {
  const page = readPage(directory);
  const assets = existsSync(join(directory, 'assets')) ? readdirSync(join(directory, 'assets')) : [];
  const files: (readonly [url: string, file: StaticFile])[] = PAGES.map((url) => [url, page]);
  for (const name of assets.filter((asset) => extname(asset) in TYPES)) {
    // The names contain a hash of the content.
    const file = readFile(directory, join('assets', name), 'public, max-age=31536000, immutable');
    files.push([`/console/assets/${name}`, file]);
  }
  return files.map(([url, { type, cache, plain, compressed }]) => ({
    method: 'GET',
    url,
    schema: { hide: true },
    async handler(request, reply) {
      const coding = contentCoding(request.headers['accept-encoding']);
      const bytes = coding && compressed.get(coding);
      reply.headers(SECURITY_HEADERS).headers({ 'Cache-Control': cache, Vary: 'Accept-Encoding' });
      if (bytes) reply.header('Content-Encoding', coding);
      return reply.type(type).send(bytes ?? plain);
    },
  }));
}

function readFile(directory: string, name: string, cache: string): StaticFile {
  const path = join(directory, name);
  const compressed = new Map<ContentCoding, Buffer>();
  if (existsSync(`${path}.br`)) compressed.set('br', readFileSync(`${path}.br`));
  if (existsSync(`${path}.gz`)) compressed.set('gzip', readFileSync(`${path}.gz`));
  const type = TYPES[extname(name)] ?? 'application/octet-stream';
  return { type, cache, plain: readFileSync(path), compressed };
}

const NOT_BUILT: StaticFile = {
  type: 'text/html; charset=utf-8',
  cache: 'no-cache',
  compressed: new Map(),
  plain: Buffer.from(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>wafstat</title>
<h1>wafstat</h1>
<p>The service is running, but the console is not built: run <code>npm run setup</code>.
<a href="/openapi.json">openapi.json</a> describes the API.</p>
</html>
`),
};
