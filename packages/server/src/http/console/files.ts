/** The built console: a handful of files that are read once and served from memory, so a path can only be one of them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../route.ts';
import { type ContentCoding, createNegotiation } from '../send.ts';

/** Where the build puts them; the same place seen from the sources and from the compiled code. */
const FOLDER = fileURLToPath(new URL('../../../dist/web/', import.meta.url));

/** The pages are one file; what it shows follows from the address. */
const PAGES = ['/console', '/console/hosts', '/console/sources', '/console/credentials', '/console/admin'];

/** Everything comes from here and from nowhere else; nothing is evaluated, embedded or framed. */
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

interface File {
  type: string;
  cache: string;
  plain: Buffer;
  compressed: ReadonlyMap<ContentCoding, Buffer>;
}

export function fileRoutes(folder = FOLDER): Route[] {
  const negotiate = createNegotiation();
  const page = existsSync(join(folder, 'index.html'))
    ? readFile(folder, 'index.html', 'no-cache')
    : NOT_BUILT;
  const assets = existsSync(join(folder, 'assets')) ? readdirSync(join(folder, 'assets')) : [];
  const files: (readonly [url: string, file: File])[] = PAGES.map((url) => [url, page]);
  for (const name of assets.filter((asset) => extname(asset) in TYPES)) {
    // Their names hold a hash of the content.
    const file = readFile(folder, join('assets', name), 'public, max-age=31536000, immutable');
    files.push([`/console/assets/${name}`, file]);
  }
  if (existsSync(join(folder, 'favicon.svg'))) {
    files.push(['/console/favicon.svg', readFile(folder, 'favicon.svg', 'public, max-age=86400')]);
  }
  return files.map(([url, file]) => ({
    method: 'GET',
    url,
    schema: { hide: true },
    handler: async (request, reply) => sendFile(file, negotiate, request, reply),
  }));
}

function sendFile(
  file: File,
  negotiate: ReturnType<typeof createNegotiation>,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const coding = negotiate(request.headers['accept-encoding']);
  const compressed = coding && file.compressed.get(coding);
  reply.headers(SECURITY_HEADERS).headers({ 'Cache-Control': file.cache, Vary: 'Accept-Encoding' });
  if (compressed) reply.header('Content-Encoding', coding);
  return reply.type(file.type).send(compressed ?? file.plain);
}

function readFile(folder: string, name: string, cache: string): File {
  const path = join(folder, name);
  const codings = [
    ['br', `${path}.br`],
    ['gzip', `${path}.gz`],
  ] as const;
  return {
    type: TYPES[extname(name)] ?? 'application/octet-stream',
    cache,
    plain: readFileSync(path),
    compressed: new Map(
      codings
        .filter(([, compressed]) => existsSync(compressed))
        .map(([coding, compressed]) => [coding, readFileSync(compressed)]),
    ),
  };
}

const NOT_BUILT: File = {
  type: 'text/html; charset=utf-8',
  cache: 'no-cache',
  compressed: new Map(),
  plain: Buffer.from(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>wafstat</title>
<h1>wafstat</h1>
<p>The service runs, but its console has not been built: <code>npm run setup</code> does that.
The interface is described in <a href="/openapi.json">openapi.json</a>.</p>
</html>
`),
};
