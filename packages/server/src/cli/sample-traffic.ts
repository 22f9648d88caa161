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

/** A burst is mostly one kind of attack, as of a scanner or a flood. */
const BURST_CATEGORIES: readonly Category[] = ['sqli', 'robot', 'cc', 'xss', 'lfi', 'cmdi'];
const BURST_WINDOW_S = 6 * 3_600;
const BURST_PER_SECOND = 0.7;

/** Where attacks of a category go, and the rule that reports them: mostly of the OWASP core rule set. */
const TARGETS: Readonly<Record<Category, { rules: readonly string[]; urls: readonly string[] }>> = {
  xss: { rules: ['941100', '941110', '941160'], urls: ['/search', '/comments', '/'] },
  sqli: { rules: ['942100', '942190', '942270'], urls: ['/login', '/products', '/api/v1/orders'] },
  cmdi: { rules: ['932100', '932160'], urls: ['/cgi-bin/status', '/api/v1/ping'] },
  cc: { rules: ['rate-limit'], urls: ['/', '/login'] },
  custom: { rules: ['10001', '10002'], urls: ['/admin', '/export'] },
  illegal: { rules: ['920350', '920280'], urls: ['/', '/upload'] },
  lfi: { rules: ['930100', '930120'], urls: ['/download', '/index.php', '/.env'] },
  robot: { rules: ['913100', '913110'], urls: ['/', '/robots.txt', '/sitemap.xml', '/products'] },
  antitamper: { rules: ['page-hash'], urls: ['/', '/about'] },
  rfi: { rules: ['931100', '931130'], urls: ['/index.php', '/proxy'] },
  vuln: { rules: ['944150', '934100'], urls: ['/api/v1/users', '/actuator/env'] },
  whiteblackip: { rules: ['blocklist'], urls: ['/'] },
  webshell: { rules: ['933110'], urls: ['/uploads/shell.php', '/wp-content/up.php'] },
};
const COUNTRIES = ['NL', 'US', 'CN', 'BR', 'IN', 'DE', 'VN'];
/** Networks that are reserved for documentation. */
const NETWORKS = ['192.0.2', '198.51.100', '203.0.113'];

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
  const add = (host: number, attack: Category | null, count: number, scanner?: number) => {
    const time = second * 1_000 + Math.floor(random() * 1_000);
    const event = { time, hostId: hostIds[host] ?? null, request: true, attack, count };
    const details = () => ({ blocked: time % 8 !== 0, ...detailsOf(attack ?? 'vuln', time, scanner) });
    events.push(attack === null ? event : { ...event, details: details() });
  };
  for (const [host, { perSecond }] of SAMPLE_HOSTS.entries()) {
    for (let n = occurrences(perSecond * factor, random); n > 0; n--) {
      const attack = random() < TRICKLE_SHARE ? pickCategory(random) : null;
      add(host, attack, attack === null ? REQUESTS_PER_EVENT : 1);
    }
  }
  if (burst && second >= burst.start && second < burst.end) {
    for (let n = occurrences(BURST_PER_SECOND, random); n > 0; n--) {
      add(burst.host, random() < 0.85 ? burst.category : pickCategory(random), 1, burst.scanner);
    }
  }
  return events.sort((a, b) => a.time - b.time);
}

/** A few addresses attack most often. Nearly all attacks of a burst have the address of its scanner. */
function detailsOf(attack: Category, time: number, scanner?: number): AttackDetails {
  const random = randomNumbers(time);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() ** 2 * values.length)] as T;
  const client = scanner !== undefined && random() < 0.9 ? scanner : Math.floor(random() ** 3 * 700);
  const network = NETWORKS[client % NETWORKS.length];
  return {
    source: client % 9 === 8 ? `2001:db8:${client.toString(16)}:1::1` : `${network}.${1 + (client % 250)}`,
    url: pick(TARGETS[attack].urls),
    rule: pick(TARGETS[attack].rules),
    country: COUNTRIES[client % COUNTRIES.length] ?? 'US',
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
  /** The number of its address. */
  scanner: number;
}

/** About two of three windows of six hours have a burst of 10 to 40 minutes. */
function burstOf(second: number): Burst | null {
  const window = Math.floor(second / BURST_WINDOW_S);
  const random = randomNumbers(window * 7_919 + 13);
  if (random() > 0.66) return null;
  const start = window * BURST_WINDOW_S + random() * (BURST_WINDOW_S - 2_400);
  const end = start + 600 + random() * 1_800;
  const host = Math.floor(random() * SAMPLE_HOSTS.length);
  const category = BURST_CATEGORIES[Math.floor(random() * BURST_CATEGORIES.length)] ?? 'sqli';
  return { start, end, host, category, scanner: Math.floor(random() * 700) };
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
