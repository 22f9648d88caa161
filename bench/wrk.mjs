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
  writeFileSync(script, luaScript(requests, pause_ms));
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
 */
function luaScript(requests, pause_ms) {
  const list = requests.map(({ path, headers, range_ms }) => {
    const fields = Object.entries(headers).map(([name, value]) => `[${lua(name)}]=${lua(value)}`);
    return `{${lua(path)},{${fields}},${range_ms ?? 'nil'}}`;
  });
  return `
local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long us; } timeval_t; int gettimeofday(timeval_t *time, void *zone);")
local clock = ffi.new("timeval_t")
local list = {${list.join(',\n')}}
local requests = {}
function init()
  for i, r in ipairs(list) do
    local text = wrk.format("GET", r[1] .. (r[3] and "RANGE" or ""), r[2])
    if r[3] then
      local first, last = text:find("RANGE", 1, true)
      requests[i] = { text:sub(1, first - 1), text:sub(last + 1), r[3] }
    else
      requests[i] = text
    end
  end
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
