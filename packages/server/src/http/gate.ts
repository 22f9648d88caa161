/** Lets work through in the order it came, while the weight of all that is inside stays below a limit. */
export class Gate {
  readonly #weight_max: number;
  #inside = 0;
  readonly #waiting: { weight: number; enter(): void }[] = [];

  constructor(weight_max: number) {
    this.#weight_max = weight_max;
  }

  /** What is heavier than the limit goes in alone. Nothing is without weight. */
  async through<T>(given: number, work: () => Promise<T>): Promise<T> {
    const weight = Math.max(1, given);
    await new Promise<void>((enter) => {
      this.#waiting.push({ weight, enter });
      this.#letIn();
    });
    try {
      return await work();
    } finally {
      this.#inside -= weight;
      this.#letIn();
    }
  }

  #letIn(): void {
    for (let next = this.#waiting[0]; next && this.#fits(next.weight); next = this.#waiting[0]) {
      this.#waiting.shift();
      // Counted here, not when the work begins: someone else may come in between.
      this.#inside += next.weight;
      next.enter();
    }
  }

  #fits(weight: number): boolean {
    return this.#inside === 0 || this.#inside + weight <= this.#weight_max;
  }
}
