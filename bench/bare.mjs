/**
 * The limit: the HTTP server of Node.js, which only sends prepared bytes: the responses of the service, with the same
 * headers.
 *
 *   node bare.mjs SERVICE TOKEN [ACCEPT_ENCODING] < PATHS      fetches the responses from the service first
 */
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { get, pathBeforeRange } from './requests.mjs';

const [service, token, coding = 'identity'] = process.argv.slice(2);
/** Node.js writes these itself. */
const OF_THE_CONNECTION = ['connection', 'date', 'keep-alive'];
const responses = new Map();
for (const path of JSON.parse(await text(process.stdin))) {
  const headers = { 'X-Auth-Token': token, 'Accept-Encoding': coding };
  const response = await get(service, { path, headers });
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  const kept = Object.entries(response.headers).filter(([name]) => !OF_THE_CONNECTION.includes(name));
  const prepared = { headers: kept.flat(), bytes: response.body };
  responses.set(path, prepared);
  // For ranges that end now, which cannot be known before: all get the same response.
  responses.set(pathBeforeRange(path), prepared);
}

const listening = createServer({ maxHeaderSize: 262_144 }, ({ url }, response) => {
  const { headers, bytes } = responses.get(url) ?? responses.get(pathBeforeRange(url));
  response.writeHead(200, headers).end(bytes);
});
listening.listen(0, '127.0.0.1', () =>
  console.log(`listens on http://127.0.0.1:${listening.address().port}`),
);
