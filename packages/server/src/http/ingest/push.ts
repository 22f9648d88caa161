/**
 * Counts the lines of a push chunk by chunk. A chunk is one batch, which counts as a whole or not at all. With an
 * idempotency key, the batch ID is the key and the chunk index, so a retried push counts only the missing chunks.
 */
import { BoundedCache } from '../../cache.ts';
import type { DropReason } from '../../event.ts';
import { Semaphore, TimeSlicer } from '../../fair-queue.ts';
import { FIRST_DROPS_MAX, type Outcome, type ReadLines } from '../../ingest/batch-reader.ts';
import { isEmpty } from '../../ingest/file.ts';
import { CHUNK_BYTES_MAX, CHUNK_LINES_MAX, type Chunk, Chunker } from '../../ingest/lines.ts';
import { type Counted, DoubtedBatches, type Pipeline } from '../../ingest/pipeline.ts';
import { createReader, type LineReader, type ReaderOptions } from '../../ingest/reader.ts';
import { reached } from '../../rare-states.ts';

/** Eight chunks counted at once, which share commits. As events they take ten times their length in memory. */
const COUNTING_BYTES_MAX = 8 * CHUNK_BYTES_MAX;
/** Of one project, so that a push of another does not wait for chunks that take a second each. */
const PROJECT_COUNTING_BYTES_MAX = COUNTING_BYTES_MAX / 2;
/** A chunk of many short lines takes as much memory as a longer one. */
const LINE_BYTES_MIN = CHUNK_BYTES_MAX / CHUNK_LINES_MAX;
/** Sources whose reader states are kept, because a line or a record may come in two pushes. */
const CACHED_SOURCES_MAX = 1_000;
/** Most reader states are empty; some take up to 3 MiB while parts of long lines are missing. */
const READER_STATE_CHARACTERS_MAX = 64 * 1_048_576;

interface Push {
  project: string;
  source: { name: string; format: string };
  /** The idempotency key, which makes a retry harmless. */
  key: string | undefined;
  pipeline: Pipeline;
  reader: ReaderOptions;
}

type Totals = Pick<Outcome, 'accepted' | 'dropped' | 'first_drops' | 'without_host'>;

interface PushResult extends Totals {
  /** The whole push was counted before. */
  duplicate: boolean;
}

/** State that the pushes of a source share. */
interface SourceState {
  /** Undefined if this process does not know it, for example after a restart. */
  readerState(): string | undefined;
  setReaderState(state: string | undefined): void;
}

export class PushCounter {
  readonly #slicer: TimeSlicer;
  readonly #counting = new Semaphore(COUNTING_BYTES_MAX, PROJECT_COUNTING_BYTES_MAX);
  readonly #readerStates = new BoundedCache<string, string>({
    name: null,
    entriesMax: CACHED_SOURCES_MAX,
    weightMax: READER_STATE_CHARACTERS_MAX,
    weight: (state) => state.length,
  });

  constructor(slicer = new TimeSlicer()) {
    this.#slicer = slicer;
  }

  /** Resolves when everything is durable. `onCounted` gets the length of each durable chunk. */
  async count(
    body: AsyncIterable<Buffer>,
    push: Push,
    onCounted: (bytes: number) => void,
  ): Promise<PushResult> {
    const chunks = new Chunker();
    const counting = new CountingPush(push, this.#sourceState(push), onCounted);
    try {
      for await (const bytes of body) {
        chunks.add(bytes);
        for (let chunk = chunks.next(false); chunk; chunk = chunks.next(false)) {
          await this.#countChunk(chunk, counting);
        }
      }
      for (let chunk = chunks.next(true); chunk; chunk = chunks.next(true)) {
        await this.#countChunk(chunk, counting);
      }
      counting.end();
      await counting.committed;
      return counting.result();
    } catch (error) {
      reached('push.refused');
      // Pending commits end first, so that no part of the push is counted after its response.
      await counting.committed.catch(() => {});
      counting.restoreState();
      throw error;
    }
  }

  /** Resolves when the chunk is parsed: the next one is parsed while the store commits this one. */
  async #countChunk(chunk: Chunk, counting: CountingPush): Promise<void> {
    if (counting.hasFailed) await counting.committed;
    const { project, pipeline } = counting.push;
    const weight = Math.max(chunk.bytes, Math.ceil(chunk.lineCount * LINE_BYTES_MIN));
    const release = await this.#counting.acquire(project, weight);
    try {
      const flush = chunk.isLast ? 'request' : 'nothing';
      const steps = pipeline.readInSteps(chunk.lines, counting.reader(), flush);
      const read = await this.#slicer.run(project, steps);
      if (chunk.isLast) counting.publishState();
      counting.commit(chunk, read, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  #sourceState({ project, source }: Push): SourceState {
    const name = JSON.stringify([project, source.name]);
    return {
      readerState: () => this.#readerStates.get(name),
      setReaderState: (state) => {
        if (state === undefined) this.#readerStates.delete(name);
        else this.#readerStates.set(name, state);
      },
    };
  }
}

class CountingPush {
  readonly push: Push;
  readonly #source: SourceState;
  readonly #onCounted: (bytes: number) => void;
  #reader: LineReader | null = null;
  #stateBefore: string | undefined;
  #publishedState: string | null = null;
  readonly #totals: Totals = { accepted: 0, dropped: {}, first_drops: [], without_host: 0 };
  readonly #doubted: DoubtedBatches;
  /** Whether a chunk was handed to the store. Then the push is not refused any more: a retry would count it twice. */
  #isBegun = false;
  #batches = 0;
  #duplicates = 0;
  /** Resolves when the latest chunk is handed to the store. */
  #handedOver: Promise<unknown> = Promise.resolve();
  /** Resolves when all chunks so far are durable. */
  committed: Promise<unknown> = Promise.resolve();
  hasFailed = false;

  constructor(push: Push, source: SourceState, onCounted: (bytes: number) => void) {
    this.push = push;
    this.#source = source;
    this.#onCounted = onCounted;
    this.#doubted = new DoubtedBatches(push.pipeline, push.project);
  }

  /** Created for the first chunk, so that it sees the state of all pushes of the source that were read before. */
  reader(): LineReader {
    if (this.#reader === null) {
      this.#stateBefore = this.#source.readerState();
      this.#reader = createReader(this.push.reader, this.#stateBefore ?? '');
    }
    return this.#reader;
  }

  /** Keeps the state for the next push of the source. A push without changes must not overwrite the state of another. */
  publishState(): void {
    const state = this.reader().state();
    if (state === (this.#stateBefore ?? '')) return;
    this.#publishedState = state;
    this.#source.setReaderState(state);
  }

  commit(chunk: Chunk, read: ReadLines, release: () => void): void {
    let isWaiting = false;
    const append = () => this.#append(isWaiting ? { ...chunk, bytes: 0 } : chunk, read, release);
    if (this.#isBegun) append();
    else isWaiting = !this.#doubted.add(read, append);
    this.#isBegun ||= !isWaiting && !isEmpty(read);
    if (!isWaiting) return;
    // Its lines are no longer in memory, and it has no events.
    this.#onCounted(chunk.bytes);
    release();
  }

  /** Throws LinesInFuture if no chunk was handed to the store. */
  end(): void {
    this.#doubted.end();
  }

  /**
   * Chunks are handed to the store in order, because the first new host names are registered; the store commits waiting
   * chunks together.
   */
  #append(chunk: Chunk, read: ReadLines, release: () => void): void {
    const handedOver = this.#handedOver.then(() => this.#handOver(chunk, read));
    const committed = handedOver.then(({ counted }) => counted).then((outcome) => this.#add(chunk, outcome));
    this.#handedOver = handedOver;
    this.committed = Promise.all([this.committed, committed.finally(release)]);
    // The error reaches whoever awaits `committed` later; until then it must not count as unhandled.
    this.committed.catch(() => {
      this.hasFailed = true;
    });
  }

  /** Wraps the promise, so that the next chunk need not wait until this one is durable. */
  async #handOver({ index, isLast }: Chunk, read: ReadLines): Promise<{ counted: Promise<Counted | null> }> {
    if (isEmpty(read) && !(isLast && this.#batches === 0)) return { counted: Promise.resolve(null) };
    this.#batches++;
    const { project, source, key, pipeline } = this.push;
    const batch = { project, source, ...(key === undefined ? {} : { id: batchId(key, index) }) };
    return { counted: pipeline.append(read, await pipeline.resolve(read, project), batch) };
  }

  #add({ bytes }: Chunk, counted: Counted | null): void {
    if (counted?.kind === 'conflict') throw new Error('only chunks of files can conflict');
    if (counted?.kind === 'duplicate') this.#duplicates++;
    if (counted?.kind === 'counted') addOutcome(this.#totals, counted.outcome);
    this.#onCounted(bytes);
  }

  /** Undoes `publishState`: the client will send the lines again. */
  restoreState(): void {
    if (this.#publishedState !== null && this.#source.readerState() === this.#publishedState) {
      this.#source.setReaderState(this.#stateBefore);
    }
  }

  result(): PushResult {
    const duplicate = this.#batches > 0 && this.#duplicates === this.#batches;
    if (this.#duplicates > 0) reached(duplicate ? 'push.duplicate' : 'push.counted-in-part');
    // Part of a line that is sent twice must not be joined twice.
    if (duplicate && this.#stateBefore !== undefined) this.restoreState();
    return { ...this.#totals, duplicate };
  }
}

/**
 * The line feed makes it differ from the ID of a chunk of a file: both may be the SHA-256 of the same lines. Headers contain
 * no line feed, so no key does.
 */
function batchId(key: string, index: number): string {
  return `${key}\n${index}`;
}

function addOutcome(totals: Totals, outcome: Outcome): void {
  totals.accepted += outcome.accepted;
  totals.without_host += outcome.without_host;
  // `Object.entries` loses the type of the keys.
  for (const [reason, n] of Object.entries(outcome.dropped) as [DropReason, number][]) {
    totals.dropped[reason] = (totals.dropped[reason] ?? 0) + n;
  }
  totals.first_drops.push(...outcome.first_drops.slice(0, FIRST_DROPS_MAX - totals.first_drops.length));
}
