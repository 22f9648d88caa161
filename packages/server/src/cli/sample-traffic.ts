/**
 * Traffic as a real site has it, made up: a daily and a weekly rhythm, a steady trickle of attacks, and bursts.
 * A pure function of the second, so that what was made once can be made again, and a gap be filled exactly.
 */
import { CATEGORIES, type Category, type Event } from '../event.ts';

export const SAMPLE_HOSTS = [
  { hostname: 'www.example.com', requests_per_s: 0.09 },
  { hostname: 'shop.example.com', requests_per_s: 0.05 },
  { hostname: 'api.example.com', requests_per_s: 0.07 },
  { hostname: 'blog.example.com', requests_per_s: 0.025 },
  { hostname: 'login.example.com', requests_per_s: 0.02 },
  { hostname: 'legacy.example.com', requests_per_s: 0.01 },
] as const;

/** How often each category comes in the trickle, relative to the others. */
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

/** What a burst consists of: mostly one kind of attack, as when a scanner or a flood comes by. */
const BURSTS: readonly Category[] = ['sqli', 'robot', 'cc', 'xss', 'lfi', 'cmdi'];
const BURST_WINDOW_S = 6 * 3_600;
const BURST_PER_S = 0.7;

/** The events of one second (since the epoch), in order. `hostIds` are those of SAMPLE_HOSTS, in their order. */
export function sampleSecond(second: number, hostIds: readonly string[]): Event[] {
  const events: Event[] = [];
  const random = randomNumbers(second);
  for (const [host, { requests_per_s }] of SAMPLE_HOSTS.entries()) {
    for (let n = occurrences(requests_per_s * rhythm(second), random); n > 0; n--) {
      const attack = random() < TRICKLE_SHARE ? pickCategory(random) : null;
      // Ordinary requests come four at a time, so that a month of them is made in seconds.
      const count = attack === null ? 4 : 1;
      events.push({
        time: moment(second, random),
        hostId: hostIds[host] ?? null,
        request: true,
        attack,
        count,
      });
    }
  }
  const burst = burstAt(second);
  if (burst) {
    for (let n = occurrences(BURST_PER_S, random); n > 0; n--) {
      const attack = random() < 0.85 ? burst.category : pickCategory(random);
      const hostId = hostIds[burst.host] ?? null;
      events.push({ time: moment(second, random), hostId, request: true, attack, count: 1 });
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

/** One attack of 10 to 40 minutes in about two of three windows of six hours. */
function burstAt(second: number): { host: number; category: Category } | null {
  const window = Math.floor(second / BURST_WINDOW_S);
  const random = randomNumbers(window * 7_919 + 13);
  if (random() > 0.66) return null;
  const start = random() * (BURST_WINDOW_S - 2_400);
  const length = 600 + random() * 1_800;
  const inside = second - window * BURST_WINDOW_S - start;
  const host = Math.floor(random() * SAMPLE_HOSTS.length);
  const category = BURSTS[Math.floor(random() * BURSTS.length)] ?? 'sqli';
  return inside >= 0 && inside < length ? { host, category } : null;
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

function moment(second: number, random: () => number): number {
  return second * 1_000 + Math.floor(random() * 1_000);
}

/** A whole number of occurrences with the given mean: the whole part, and the rest by chance. */
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
