/**
 * Counts the lines of a push, chunk by chunk: a chunk is one batch, which counts as a whole or not at all. With a key,
 * the ID of the batch is the key and the number of the chunk, so a push that is sent again counts what is missing.
 */
import type { DropReason } from '../../event.ts';
import { isEmpty } from '../../ingest/file.ts';
import { PushedRequests, RecentRequests } from '../../ingest/formats/transactions.ts';
import { CHUNK_BYTES_MAX, CHUNK_LINES_MAX, type Chunk, Chunker } from '../../ingest/lines.ts';
import {
  type Counted,
  type Drop,
  FIRST_DROPS_MAX,
  type Pipeline,
  type ReadLines,
} from '../../ingest/pipeline.ts';
import { createReader, type LineReader, type ReaderOptions } from '../../ingest/reader.ts';
import { Recent } from '../recent.ts';
import { Semaphore } from '../semaphore.ts';
import { Turns } from './turns.ts';

/** Full chunks that are being counted at once, and share commits: as events they take ten times their length. */
const COUNTING_MAX = 8;
/** Sources whose latest requests are remembered, because the lines of one request may come in two pushes. */
const SOURCES_REMEMBERED_MAX = 1_000;
/** In characters. Most sources have none, some up to 3 MiB while parts of long lines are missing. */
const REMEMBERED_LENGTH_MAX = 64 * 1_048_576;

export interface Push {
  project: string;
  source: { name: string; format: string };
  /** Makes a retry harmless. */
  key: string | undefined;
  pipeline: Pipeline;
  reader: ReaderOptions;
}

export interface PushResult {
  accepted: number;
  dropped: Partial<Record<DropReason, number>>;
  first_drops: Drop[];
  /** Accepted records without a registered host. */
  without_host: number;
  /** All of it was counted before. */
  duplicate: boolean;
}

/** What the pushes of a source know of each other. */
interface SourceState {
  requests: RecentRequests;
  readerState(): string;
  setReaderState(state: string): void;
}

export class PushCounter {
  readonly #turns = new Turns();
  readonly #counting = new Semaphore(COUNTING_MAX);
  readonly #readerStates = new Recent(SOURCES_REMEMBERED_MAX, REMEMBERED_LENGTH_MAX);
  /** The source that sent last comes last. */
  readonly #requests = new Map<string, RecentRequests>();

  /** Resolves when all is durable. `onCounted` gets the length of each chunk that is. */
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
      await counting.committed;
      return counting.result();
    } catch (error) {
      // What is under way ends first, so that nothing of the push is counted after its response.
      await counting.committed.catch(() => {});
      counting.takeBack();
      throw error;
    }
  }

  /** Resolves when the chunk is read: the next one is read while the store commits it. */
  async #countChunk(chunk: Chunk, counting: CountingPush): Promise<void> {
    if (counting.hasFailed) await counting.committed;
    const { project, pipeline } = counting.push;
    const weight = Math.max(chunk.bytes / CHUNK_BYTES_MAX, chunk.lineCount / CHUNK_LINES_MAX);
    const release = await this.#counting.acquire(project, weight);
    try {
      const flush = chunk.isLast ? 'request' : 'nothing';
      const read = await this.#turns.run(
        project,
        pipeline.readInSteps(chunk.lines, counting.reader(), flush),
      );
      if (chunk.isLast) counting.publishState();
      counting.commit(chunk, read, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  #sourceState({ project, source }: Push): SourceState {
    const name = JSON.stringify([project, source.name]);
    const requests = this.#requests.get(name) ?? new RecentRequests();
    this.#requests.delete(name);
    this.#requests.set(name, requests);
    const [oldest] = this.#requests.keys();
    if (this.#requests.size > SOURCES_REMEMBERED_MAX && oldest !== undefined) this.#requests.delete(oldest);
    return {
      requests,
      readerState: () => this.#readerStates.get(name) ?? '',
      setReaderState: (state) => this.#readerStates.set(name, state),
    };
  }
}

class CountingPush {
  readonly push: Push;
  readonly #source: SourceState;
  readonly #requests: PushedRequests;
  readonly #onCounted: (bytes: number) => void;
  #reader: LineReader | null = null;
  #stateBefore = '';
  #publishedState: string | null = null;
  readonly #result: PushResult = {
    accepted: 0,
    dropped: {},
    first_drops: [],
    without_host: 0,
    duplicate: false,
  };
  #batches = 0;
  #duplicates = 0;
  /** The latest chunk has been handed to the store. */
  #handedOver: Promise<unknown> = Promise.resolve();
  /** All chunks so far are durable. */
  committed: Promise<unknown> = Promise.resolve();
  hasFailed = false;

  constructor(push: Push, source: SourceState, onCounted: (bytes: number) => void) {
    this.push = push;
    this.#source = source;
    this.#requests = new PushedRequests(source.requests);
    this.#onCounted = onCounted;
  }

  /** Made for the first chunk, so that it knows of all pushes of the source that were read before. */
  reader(): LineReader {
    if (this.#reader === null) {
      this.#stateBefore = this.#source.readerState();
      this.#reader = createReader(this.push.reader, this.#stateBefore, this.#requests);
    }
    return this.#reader;
  }

  /** For the next push of the source. One that changes nothing must not overwrite what another one has published. */
  publishState(): void {
    const state = this.reader().state();
    if (state === this.#stateBefore) return;
    this.#publishedState = state;
    this.#source.setReaderState(state);
  }

  /**
   * Chunks are handed to the store in order, because the first new host names are registered; the store commits those
   * that wait together.
   */
  commit(chunk: Chunk, read: ReadLines, release: () => void): void {
    const handedOver = this.#handedOver.then(() => this.#handOver(chunk, read));
    const committed = handedOver.then(({ counted }) => counted).then((outcome) => this.#add(chunk, outcome));
    this.#handedOver = handedOver;
    this.committed = Promise.all([this.committed, committed.finally(release)]);
    // Whoever awaits it gets the error; until then nobody may.
    this.committed.catch(() => {
      this.hasFailed = true;
    });
  }

  /** The result is in an object, so that the next chunk need not wait until this one is durable. */
  async #handOver({ index, isLast }: Chunk, read: ReadLines): Promise<{ counted: Promise<Counted | null> }> {
    if (isEmpty(read) && !(isLast && this.#batches === 0)) return { counted: Promise.resolve(null) };
    this.#batches++;
    const { project, source, key, pipeline } = this.push;
    const batch = { project, source, ...(key === undefined ? {} : { id: batchId(key, index) }) };
    return { counted: pipeline.append(read, await pipeline.resolve(read, project), batch) };
  }

  #add({ bytes }: Chunk, counted: Counted | null): void {
    if (counted?.kind === 'conflict') throw new Error('a chunk of a push is no chunk of a file');
    if (counted?.kind === 'duplicate') this.#duplicates++;
    if (counted?.kind === 'counted') addOutcome(this.#result, counted.outcome);
    this.#onCounted(bytes);
  }

  /** The sender will try again, and must not find that its own lines are known. */
  takeBack(): void {
    this.#requests.rollback();
    this.#takeBackState();
  }

  #takeBackState(): void {
    if (this.#publishedState !== null && this.#source.readerState() === this.#publishedState) {
      this.#source.setReaderState(this.#stateBefore);
    }
  }

  result(): PushResult {
    const duplicate = this.#batches > 0 && this.#duplicates === this.#batches;
    // A part of a line that is sent again must not be joined twice.
    if (duplicate && this.#stateBefore !== '') this.#takeBackState();
    return { ...this.#result, duplicate };
  }
}

/** The first chunk has the key itself: most pushes are one chunk. A line feed is in no header, so in no other key. */
function batchId(key: string, index: number): string {
  return index === 0 ? key : `${key}\n${index}`;
}

function addOutcome(
  result: PushResult,
  outcome: Pick<PushResult, 'accepted' | 'dropped' | 'first_drops' | 'without_host'>,
): void {
  result.accepted += outcome.accepted;
  result.without_host += outcome.without_host;
  // The keys of an outcome are drop reasons, which `Object.entries` does not know.
  for (const [reason, n] of Object.entries(outcome.dropped) as [DropReason, number][]) {
    result.dropped[reason] = (result.dropped[reason] ?? 0) + n;
  }
  result.first_drops.push(...outcome.first_drops.slice(0, FIRST_DROPS_MAX - result.first_drops.length));
}
