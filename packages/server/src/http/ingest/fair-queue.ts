/** A queue that takes one item of each owner in turn, so that many items of one owner delay the others by one item only. */
export class FairQueue<T> {
  /** The owner whose turn it is comes first. */
  readonly #items = new Map<string, T[]>();

  add(owner: string, item: T): void {
    const items = this.#items.get(owner);
    if (items === undefined) this.#items.set(owner, [item]);
    else items.push(item);
  }

  /** The item whose turn it is. It stays in the queue. */
  peek(): T | undefined {
    const [items] = this.#items.values();
    return items?.[0];
  }

  /** Removes the item whose turn it is, and ends the turn of its owner. */
  take(): T | undefined {
    const [first] = this.#items;
    if (first === undefined) return undefined;
    const [owner, items] = first;
    const item = items.shift();
    this.#items.delete(owner);
    if (items.length > 0) this.#items.set(owner, items);
    return item;
  }
}
