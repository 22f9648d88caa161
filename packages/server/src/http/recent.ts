/** A map that forgets what was set longest ago when it is full. */
export class Recent<T> {
  readonly #size_max: number;
  readonly #entries = new Map<string, T>();

  constructor(size_max: number) {
    this.#size_max = size_max;
  }

  get(key: string): T | undefined {
    return this.#entries.get(key);
  }

  set(key: string, value: T): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > this.#size_max && oldest !== undefined) this.#entries.delete(oldest);
  }
}
