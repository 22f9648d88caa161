/** The load generator: wrk repeats a list of requests on a few connections. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Enough to keep every candidate busy, even those that process several requests at once. */
const CONNECTIONS = 16;
/** For a limited rate: enough connections that each sends only a few requests per second, like separate clients. */
const CONNECTIONS_PACED_MAX = 64;

/**
 * Sends `requests` ({path, headers}, or those of `liveRequest`) to the address for some seconds: as fast as responses
 * arrive, or about `rate` per second, at random times. Returns the responses per second, and latencies in milliseconds.
 * Errors do not count: the HTTP layer sheds queries that wait too long for a slow store. `mayShedAll`: all of them.
 */
export async function generateLoad({ directory, address, requests, seconds, rate, mayShedAll = false }) {
  const connections = rate ? Math.min(CONNECTIONS_PACED_MAX, Math.ceil(rate / 4)) : CONNECTIONS;
  const pause_ms = rate ? (connections / rate) * 1_000 : 0;
  const script = join(directory, 'load.lua');
  writeFileSync(script, luaScript(new URL(address).host, requests, pause_ms));
  const args = [
    '-t',
    '1',
    '-c',
    String(connections),
    '-d',
    `${seconds}s`,
    '--timeout',
    '10s',
    '-s',
    script,
    address,
  ];
  // Latencies are those of clients on other machines, which do not wait for a core of this one. Where `nice` may not raise the
  // priority, it runs the program as it is.
  const command = rate ? ['nice', '-n', '-20', 'wrk'] : ['wrk'];
  const { stdout } = await promisify(execFile)(command[0], [...command.slice(1), ...args]);
  const result = JSON.parse(stdout.split('\n').find((line) => line.startsWith('{')));
  if (result.responses === result.errors && !mayShedAll)
    throw new Error(`${address} failed: ${JSON.stringify(result)}`);
  return {
    per_s: (result.responses - result.errors) / (result.us / 1e6),
    p50: result.p50 / 1_000,
    p99: result.p99 / 1_000,
  };
}

/**
 * A request is its bytes, or those around the range that ends now, and the length of the range. Ranges are up to a second
 * shorter, so that those sent in the same millisecond differ: else the service would send some of them from its cache.
 * The order of the headers is always the same, as that of real clients. wrk itself would choose another in every run, and for each
 * new order V8 optimizes the functions that read headers again, which takes most of a second.
 */
function luaScript(host, requests, pause_ms) {
  const list = requests.map(({ path, headers, range_ms }) => {
    const fields = Object.entries({ Host: host, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    const end = ` HTTP/1.1\r\n${fields.join('')}\r\n`;
    return range_ms === undefined
      ? lua(`GET ${path}${end}`)
      : `{${lua(`GET ${path}`)},${lua(end)},${range_ms}}`;
  });
  return `
local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long us; } timeval_t; int gettimeofday(timeval_t *time, void *zone);")
local clock = ffi.new("timeval_t")
local requests = {${list.join(',\n')}}
function init()
  math.randomseed(os.time())
end
local at, sent = 0, 0
function request()
  at = at % #requests + 1
  local r = requests[at]
  if type(r) == "string" then return r end
  ffi.C.gettimeofday(clock, nil)
  local now = tonumber(clock.s) * 1000 + math.floor(tonumber(clock.us) / 1000)
  sent = sent % 1000 + 1
  return string.format("%sfrom=%.0f&to=%.0f%s", r[1], now - r[3] + sent, now, r[2])
end
${pause_ms > 0 ? `function delay() return math.floor(-${pause_ms} * math.log(1 - math.random()) + 0.5) end` : ''}
function done(summary, latency)
  local e = summary.errors
  print(string.format('{"responses":%d,"us":%d,"errors":%d,"p50":%d,"p99":%d}', summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
`;
}

function lua(text) {
  return JSON.stringify(text);
}
