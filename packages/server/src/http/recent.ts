/** A map of texts that forgets what was set longest ago when it holds too many entries or characters. */
export class Recent {
  readonly #entriesMax: number;
  readonly #lengthMax: number;
  readonly #entries = new Map<string, string>();
  #length = 0;

  constructor(entriesMax: number, lengthMax: number) {
    this.#entriesMax = entriesMax;
    this.#lengthMax = lengthMax;
  }

  get(key: string): string | undefined {
    return this.#entries.get(key);
  }

  set(key: string, value: string): void {
    this.#delete(key);
    this.#entries.set(key, value);
    this.#length += value.length;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#entriesMax && this.#length <= this.#lengthMax) break;
      this.#delete(oldest);
    }
  }

  #delete(key: string): void {
    this.#length -= this.#entries.get(key)?.length ?? 0;
    this.#entries.delete(key);
  }
}
