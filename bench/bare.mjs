/**
 * The limit: Node's HTTP server, with nothing to do but to send bytes that it has ready.
 *
 *   node bare.mjs SERVICE TOKEN < PATHS      asks the service for them first
 */
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const [service, token] = process.argv.slice(2);
const answers = new Map();
for (const path of JSON.parse(await text(process.stdin))) {
  const response = await fetch(service + path, { headers: { 'X-Auth-Token': token } });
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  answers.set(path, Buffer.from(await response.arrayBuffer()));
}

const listening = createServer({ maxHeaderSize: 262_144 }, (request, response) => {
  const bytes = answers.get(request.url);
  response.writeHead(200, {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': bytes.length,
  });
  response.end(bytes);
});
listening.listen(0, '127.0.0.1', () =>
  console.log(`listens on http://127.0.0.1:${listening.address().port}`),
);
