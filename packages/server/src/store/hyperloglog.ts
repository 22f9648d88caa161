/** HyperLogLog sketches, which estimate how many distinct values a top list has seen. */

/** The registers of a HyperLogLog sketch, a byte each. The standard error is 1.04 / sqrt(2048) = 2.3 %. */
export const REGISTERS = 2_048;
const REGISTER_BITS = 11;

/**
 * Hashes keys for sketches. The seed is the project ID: equal in all stores, so that sketches can be merged and copied,
 * but unknown to those who choose the addresses and URLs of attacks, and could otherwise inflate the estimate.
 */
export class KeyHash {
  readonly #seeds: [number, number];
  readonly #prefix: string;

  constructor(project: string, prefix = '') {
    this.#seeds = hashText(project, 0x9e3779b9, 0x85ebca6b);
    this.#prefix = prefix;
  }

  addTo(sketch: Uint8Array, key: string): void {
    const [one, other] = hashText(this.#prefix + key, ...this.#seeds);
    const register = one >>> (32 - REGISTER_BITS);
    const rank = Math.clz32(other) + 1;
    if ((sketch[register] ?? 0) < rank) sketch[register] = rank;
  }
}

/** Two lanes of multiplications, each with the final mix of MurmurHash3. */
function hashText(text: string, seed: number, otherSeed: number): [number, number] {
  let [one, other] = [seed, otherSeed];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    one = Math.imul(one ^ code, 0x9e3779b1);
    other = Math.imul(other ^ code, 0x5f356495) ^ (one >>> 15);
  }
  return [mixed(one ^ (other >>> 13)), mixed(other ^ (one >>> 16))];
}

function mixed(hash: number): number {
  let h = hash ^ (hash >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

export function addSketch(sketch: Uint8Array, other: Uint8Array): void {
  for (let i = 0; i < REGISTERS; i++) if ((other[i] ?? 0) > (sketch[i] ?? 0)) sketch[i] = other[i] ?? 0;
}

/** The estimator of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", without saturation. */
export function estimate(sketch: Uint8Array): number {
  let zeros = 0;
  let sum = 0;
  for (const rank of sketch) {
    if (rank === 0) zeros++;
    else sum += 2 ** -rank;
  }
  if (zeros === REGISTERS) return 0;
  let x = zeros / REGISTERS;
  let y = 1;
  let sigma = x;
  for (let before = -1; sigma !== before; y *= 2) {
    x *= x;
    before = sigma;
    sigma += x * y;
  }
  return Math.round(REGISTERS ** 2 / (2 * Math.LN2 * (REGISTERS * sigma + sum)));
}
