/**
 * Objects that many lines repeat, except for some strings. Finds an object by comparing its bytes outside these strings, a
 * word at a time, with those of earlier objects, whose fields have been picked. Then a line of ModSecurity 3 takes 0.75 of
 * the time, because each of its rules is also classified once.
 *
 * The bytes of an object are a path in a tree of runs: `{"match":`, a varying string, `,"reference":`, and so on.
 */
import type { JsonObject } from './json.ts';
import { BYTES, COLON, QUOTE, stringEnd, textBetween, UNUSUAL, wordAt } from './json-bytes.ts';

/** Of all runs together, in bytes: more than all rules of CRS need. Beyond it, all are forgotten. */
const RUNS_BYTES_MAX = 1_048_576;

/** What a run takes besides its bytes. */
const RUN_BYTES = 256;

/** Runs that begin with the same bytes: each of them is compared. */
const SIMILAR_MAX = 4;

/** The bytes by which runs are found: enough for `,"ruleId":"942100"`. */
const HEAD_LENGTH = 20;

/** A word. */
const RUN_LENGTH_MIN = 4;

/**
 * Adding an object takes as long as picking several. So 256 are added, and then one for 16 that were found: a log whose
 * objects do not recur is not read more slowly.
 */
const CREDIT_MAX = 4_096;
const CREDIT_PER_OBJECT = 16;

export class RecurringObjects {
  /** The object that was found last. */
  found: JsonObject = {};
  readonly #varying: ReadonlySet<string>;
  readonly #create: (fields: JsonObject) => JsonObject;
  #root = new Run(0, 0, null);
  #bytes = 0;
  #credit = CREDIT_MAX;

  constructor(varying: readonly string[], create: (fields: JsonObject) => JsonObject) {
    this.#varying = new Set(varying);
    this.#create = create;
  }

  /** Sets `found` to the object at `start`, and returns the offset after it; UNUSUAL for an object that is not known. */
  find(start: number): number {
    let at = start;
    for (let run = this.#root.nextAt(at); run !== null; run = run.nextAt(at)) {
      at += run.length;
      if (run.object !== null) {
        this.found = run.object;
        if (this.#credit < CREDIT_MAX) this.#credit++;
        return at;
      }
      at = BYTES[at] === QUOTE ? stringEnd(at + 1) : UNUSUAL;
      if (at === UNUSUAL) break;
    }
    return UNUSUAL;
  }

  /** Adds the valid object between the offsets. Returns what to pick instead of its fields. */
  add(start: number, end: number, fields: JsonObject): JsonObject {
    if (this.#credit < CREDIT_PER_OBJECT) return fields;
    this.#credit -= CREDIT_PER_OBJECT;
    if (this.#bytes > RUNS_BYTES_MAX) {
      this.#root = new Run(0, 0, null);
      this.#bytes = 0;
    }
    // Copied, because substrings would keep the whole line in memory.
    const object = this.#create(JSON.parse(JSON.stringify(fields)));
    let run = this.#root;
    let at = start;
    for (const runEnd of this.#runEnds(start, end)) {
      if (runEnd - at < RUN_LENGTH_MIN) break;
      run = run.addNext(at, runEnd, runEnd === end ? object : null);
      this.#bytes += run.length + RUN_BYTES;
      at = runEnd === end ? end : stringEnd(runEnd + 1);
    }
    return object;
  }

  /** The offsets of the varying strings of an object, and its end. */
  #runEnds(start: number, end: number): number[] {
    const ends: number[] = [];
    for (let at = start; at < end; ) {
      if (BYTES[at] !== QUOTE) {
        at++;
        continue;
      }
      const name = at + 1;
      at = stringEnd(name);
      if (BYTES[at] !== COLON || BYTES[at + 1] !== QUOTE) continue;
      if (!this.#varying.has(textBetween(name, at - 1))) continue;
      ends.push(at + 1);
      at = stringEnd(at + 2);
    }
    return [...ends, end];
  }
}

/** Bytes that objects have in common, up to the next varying string or to the end of the object. */
class Run {
  readonly length: number;
  /** The object that ends here; null if a varying string follows. */
  readonly object: JsonObject | null;
  readonly #words: Int32Array;
  /** The last four bytes, which may overlap `#words`. */
  readonly #last: number;
  /** The runs after the varying string: those shorter than HEAD_LENGTH, and the others by their first bytes. */
  #short: Run[] = [];
  #byHead: Map<number, Run[]> | null = null;
  /** The next run of the object that was found last. */
  #recent: Run | null = null;

  constructor(start: number, end: number, object: JsonObject | null) {
    this.length = end - start;
    this.object = object;
    this.#words = new Int32Array(this.length >> 2);
    for (let i = 0; i < this.#words.length; i++) this.#words[i] = wordAt(start + 4 * i);
    this.#last = this.length === 0 ? 0 : wordAt(end - 4);
  }

  nextAt(at: number): Run | null {
    if (this.#recent?.isAt(at)) return this.#recent;
    this.#recent = runAt(this.#short, at) ?? runAt(this.#byHead?.get(headAt(at)) ?? [], at);
    return this.#recent;
  }

  /** Returns the equal run if there is one. */
  addNext(start: number, end: number, object: JsonObject | null): Run {
    const similar = end - start < HEAD_LENGTH ? this.#short : this.#withHead(headAt(start));
    const equal = similar.find((each) => each.length === end - start && each.isAt(start));
    if (equal !== undefined) return equal;
    const run = new Run(start, end, object);
    if (similar.length === SIMILAR_MAX) similar.shift();
    similar.push(run);
    return run;
  }

  #withHead(head: number): Run[] {
    this.#byHead ??= new Map();
    const runs = this.#byHead.get(head) ?? [];
    this.#byHead.set(head, runs);
    return runs;
  }

  isAt(at: number): boolean {
    const words = this.#words;
    // Never beyond the zeros after the line, because a run has none.
    for (let i = 0; i < words.length; i++) if (wordAt(at + 4 * i) !== words[i]) return false;
    return wordAt(at + this.length - 4) === this.#last;
  }
}

function runAt(runs: readonly Run[], at: number): Run | null {
  for (const run of runs) if (run.isAt(at)) return run;
  return null;
}

function headAt(at: number): number {
  let head = 0;
  for (let i = 0; i < HEAD_LENGTH; i += 4) head = Math.imul(head ^ wordAt(at + i), 0x9e3779b1);
  return head;
}
