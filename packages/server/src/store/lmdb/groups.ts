/**
 * Sets of hosts that are asked for again get a number, and their sums are kept under it like the counters of one host:
 * a dashboard asks for the same hundred hosts every time, over a range that has moved on (docs/decisions/0012).
 */

/** Of all sets together, written as text: some hundred sets of a thousand hosts. */
const CHARACTERS_MAX = 1_048_576;

export class Groups {
  readonly #numbers = new Map<string, number>();
  #characters = 0;
  #last = 0;

  /** Negative, as no host's is; undefined when the set is asked for the first time. */
  numberOf(scopes: readonly number[]): number | undefined {
    const name = nameOf(scopes);
    const known = this.#numbers.get(name);
    if (known === undefined) this.#give(name);
    return known;
  }

  /** The number of the set, also when it is asked for the first time. */
  numberFor(scopes: readonly number[]): number {
    const name = nameOf(scopes);
    return this.#numbers.get(name) ?? this.#give(name);
  }

  #give(name: string): number {
    if (this.#characters > CHARACTERS_MAX) {
      this.#numbers.clear();
      this.#characters = 0;
    }
    this.#characters += name.length;
    // Never one that another set has had: sums may still be kept under it.
    this.#last--;
    this.#numbers.set(name, this.#last);
    return this.#last;
  }
}

function nameOf(scopes: readonly number[]): string {
  return scopes.toSorted((a, b) => a - b).join();
}
