/** What `Accept-Encoding` and `If-None-Match` cost and save, for a response of 91 KB. */
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { get, withoutCache } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';

/** Returns `{way: {bytes, per_s: [one per round]}}`. */
export async function measureCompression({ directory, address, requests, rounds, seconds, log }) {
  const plain = await get(address, requests[0]);
  const add = (name, value) =>
    requests.map(({ path, headers }) => ({ path, headers: { ...headers, [name]: value } }));
  const marked = await Promise.all(
    requests.map(async (request) => {
      const { headers } = await get(address, request);
      return { path: request.path, headers: { ...request.headers, 'If-None-Match': headers.etag } };
    }),
  );
  const ways = {
    plain: requests,
    'gzip, cached': add('Accept-Encoding', 'gzip'),
    'br, cached': add('Accept-Encoding', 'br'),
    'unchanged (304)': marked,
    'plain, computed': withoutCache(requests),
    'gzip, computed': withoutCache(add('Accept-Encoding', 'gzip')),
    'br, computed': withoutCache(add('Accept-Encoding', 'br')),
  };
  const results = {};
  for (let round = 0; round < rounds; round++) {
    log(`compression: round ${round + 1} of ${rounds}`);
    for (const [way, all] of Object.entries(ways)) {
      const { headers, body } = await get(address, all[0]);
      if (body.length > 0 && !decompressed(headers, body).equals(plain.body))
        throw new Error(`${way} differs`);
      const { per_s } = await generateLoad({ directory, address, requests: all, seconds });
      results[way] ??= { bytes: body.length, per_s: [] };
      results[way].per_s.push(per_s);
    }
  }
  return results;
}

function decompressed(headers, body) {
  const decompress = { gzip: gunzipSync, br: brotliDecompressSync }[headers['content-encoding']];
  return decompress ? decompress(body) : body;
}
