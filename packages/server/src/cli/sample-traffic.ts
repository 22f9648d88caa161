/**
 * Generated traffic that looks like that of a real site: a daily and a weekly rhythm, a steady trickle of attacks, and
 * bursts. Each second depends on its number alone, so that a gap is filled with the same events at any time.
 */
import { CATEGORIES, type Category, type Event } from '../event.ts';

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
  const add = (host: number, attack: Category | null, count: number) => {
    const time = second * 1_000 + Math.floor(random() * 1_000);
    const event = { time, hostId: hostIds[host] ?? null, request: true, attack, count };
    events.push(attack === null ? event : { ...event, details: { blocked: time % 8 !== 0 } });
  };
  for (const [host, { perSecond }] of SAMPLE_HOSTS.entries()) {
    for (let n = occurrences(perSecond * factor, random); n > 0; n--) {
      const attack = random() < TRICKLE_SHARE ? pickCategory(random) : null;
      add(host, attack, attack === null ? REQUESTS_PER_EVENT : 1);
    }
  }
  if (burst && second >= burst.start && second < burst.end) {
    for (let n = occurrences(BURST_PER_SECOND, random); n > 0; n--) {
      add(burst.host, random() < 0.85 ? burst.category : pickCategory(random), 1);
    }
  }
  return events.sort((a, b) => a.time - b.time);
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

/** About two of three windows of six hours have a burst of 10 to 40 minutes. */
function burstOf(second: number): Burst | null {
  const window = Math.floor(second / BURST_WINDOW_S);
  const random = randomNumbers(window * 7_919 + 13);
  if (random() > 0.66) return null;
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
