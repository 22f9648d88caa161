/**
 * Statistics as they are sent: with a mark of their version, so that who asks again is told that nothing has changed;
 * packed, for who can unpack; and remembered for a while, for who asks the same (docs/decisions/0012).
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Store } from '../store/store.ts';
import type { RawQuery } from './query.ts';
import { ReplyBuffers } from './reply-buffers.ts';
import type { Allocate } from './timeline-json.ts';

interface Answer {
  from: number;
  to: number;
  /** Empty when there is none. */
  version: string;
  bytes: Buffer;
  /** What has been packed of it, by coding; null when the bytes are good for one reply only. */
  packed: Map<Coding, Buffer> | null;
}

/** Some 120 timelines of a day by minute, with room for their packed forms. */
const KEPT_BYTES_MAX = 16_777_216;
/** What an answer takes besides its bytes: its address, and the objects around it. */
const ANSWER_BYTES = 1_024;
/** Addresses that have been asked for once: most have 200 characters, those with a thousand hosts 33,000. */
const ASKED_CHARACTERS_MAX = 4_194_304;
/** Less than this fits into one packet of the network either way. */
const PACKED_BYTES_MIN = 1_400;

/** A window of 128 KB: the default of 4 MB costs memory for each answer, and gains nothing. */
const BROTLI = { [constants.BROTLI_PARAM_QUALITY]: 3, [constants.BROTLI_PARAM_LGWIN]: 17 };

const CODINGS = {
  /** As fast as the fastest gzip (0.7 ms for a day by minute), and less than half as long. The default takes 140 ms. */
  br: (bytes: Buffer) => promisify(brotliCompress)(bytes, { params: BROTLI }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes, { level: 1 }),
} as const;
type Coding = keyof typeof CODINGS;

/** What a request asks for: a range of time, and a way to get the bytes of the answer about it. */
interface Question {
  from: number;
  to: number;
  make(allocate: Allocate): Promise<Buffer>;
}

export type SendAnswer = (
  request: FastifyRequest,
  reply: FastifyReply,
  parse: () => Question,
) => Promise<FastifyReply>;

export function createAnswers(store: Store): SendAnswer {
  const kept = new KeptAnswers();
  const buffers = new ReplyBuffers();

  async function answerTo(
    request: FastifyRequest,
    parse: () => Question,
    allocate: Allocate,
  ): Promise<Answer> {
    const { url } = request;
    const afresh = request.headers['cache-control'] === 'no-cache';
    const known = afresh ? undefined : kept.get(url);
    if (known !== undefined && known.version === (await store.version(known))) return known;
    const { from, to, make } = parse();
    // Asked for before the counts: should they change in between, the answer only passes for older than it is.
    const version = await store.version({ from, to });
    const answer = { from, to, version: version ?? '', bytes: await make(allocate), packed: null };
    // What an address asks for is always the same, unless it says `recent`.
    const lasting = version !== null && (request.query as RawQuery).recent === undefined;
    return lasting && !afresh ? kept.offer(url, answer) : answer;
  }

  return async (request, reply, parse) => {
    const coding = acceptedCoding(request.headers['accept-encoding']);
    // What is still to be packed must stay as it is, even when the connection is closed meanwhile.
    const allocate: Allocate = (bytes) =>
      coding === undefined ? buffers.take(bytes, reply.raw) : Buffer.allocUnsafe(bytes);
    const answer = await answerTo(request, parse, allocate);
    reply.header('Vary', 'Accept-Encoding');
    if (answer.version !== '') {
      const etag = `W/"${answer.version}"`;
      // To be asked about each time, and by no one else: the answer is for who may read the project.
      reply.header('ETag', etag).header('Cache-Control', 'private, no-cache');
      if (request.headers['if-none-match']?.includes(etag)) return reply.code(304).send();
    }
    reply.type('application/json; charset=utf-8');
    if (coding === undefined || answer.bytes.length < PACKED_BYTES_MIN) return reply.send(answer.bytes);
    const packed = answer.packed?.get(coding) ?? (await CODINGS[coding](answer.bytes));
    answer.packed?.set(coding, packed);
    return reply.header('Content-Encoding', coding).send(packed);
  };
}

/** Answers to what was asked for more than once: most ranges end now, and nobody asks for them again. */
class KeptAnswers {
  /** By address, oldest first. */
  readonly #kept = new Map<string, Answer>();
  readonly #asked = new Set<string>();
  #askedCharacters = 0;
  #bytes = 0;

  get(url: string): Answer | undefined {
    return this.#kept.get(url);
  }

  /** Answers what is to be sent. */
  offer(url: string, answer: Answer): Answer {
    if (!this.#asked.has(url)) {
      this.#noteAsked(url);
      return answer;
    }
    this.#forget(url);
    const own = { ...answer, bytes: Buffer.from(answer.bytes), packed: new Map() };
    this.#kept.set(url, own);
    this.#bytes += sizeOf(url, own);
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= KEPT_BYTES_MAX) break;
      this.#forget(oldest);
    }
    return own;
  }

  #noteAsked(url: string): void {
    if (this.#askedCharacters > ASKED_CHARACTERS_MAX) {
      this.#asked.clear();
      this.#askedCharacters = 0;
    }
    this.#asked.add(url);
    this.#askedCharacters += url.length;
  }

  #forget(url: string): void {
    const answer = this.#kept.get(url);
    if (answer === undefined) return;
    this.#bytes -= sizeOf(url, answer);
    this.#kept.delete(url);
  }
}

/** With room for both packed forms, which are far smaller. */
function sizeOf(url: string, { bytes }: Answer): number {
  return ANSWER_BYTES + url.length + bytes.length * 1.5;
}

/** The better of those that the client names and does not refuse (`;q=0`). */
function acceptedCoding(header: string | string[] | undefined): Coding | undefined {
  if (header === undefined) return undefined;
  const accepted = String(header).split(',');
  return (['br', 'gzip'] as const).find((coding) =>
    accepted.some((part) => new RegExp(`^\\s*${coding}\\s*(;\\s*q=(?!0(\\.0*)?\\s*$)|$)`, 'i').test(part)),
  );
}
