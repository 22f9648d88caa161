/**
 * The limit: the HTTP server of Node.js, which only sends prepared bytes: the responses of the service, with the same
 * headers.
 *
 *   node bare.mjs SERVICE TOKEN < PATHS      fetches the responses from the service first
 */
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const [service, token] = process.argv.slice(2);
/** Node.js writes these itself. */
const OF_THE_CONNECTION = ['connection', 'date', 'keep-alive'];
const responses = new Map();
for (const path of JSON.parse(await text(process.stdin))) {
  const response = await fetch(service + path, {
    headers: { 'X-Auth-Token': token, 'Accept-Encoding': 'identity' },
  });
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  const headers = [...response.headers].filter(([name]) => !OF_THE_CONNECTION.includes(name)).flat();
  responses.set(path, { headers, bytes: Buffer.from(await response.arrayBuffer()) });
}

const listening = createServer({ maxHeaderSize: 262_144 }, (request, response) => {
  const { headers, bytes } = responses.get(request.url);
  response.writeHead(200, headers).end(bytes);
});
listening.listen(0, '127.0.0.1', () =>
  console.log(`listens on http://127.0.0.1:${listening.address().port}`),
);
