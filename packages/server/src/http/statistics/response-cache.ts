/**
 * Statistics as they are sent: with a mark of their version, so that who asks again is told that nothing has changed;
 * packed, for who can unpack; and remembered for a while, for who asks the same (docs/decisions/0012).
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type MaybePromise, mapMaybe } from '../../maybe-promise.ts';
import type { Store } from '../../store/store.ts';
import { sendBytes } from '../send-bytes.ts';
import { Admission } from './admission.ts';
import { type ContentCoding, createNegotiation } from './content-coding.ts';
import { ReplyBuffers } from './reply-buffers.ts';
import type { Allocate } from './timeline-json.ts';

interface Answer {
  from: number;
  to: number;
  version: string | null;
  /** Of the version. */
  etag: string | undefined;
  /** The headers that tell of it. */
  marks: readonly string[];
  bytes: Buffer;
  /** What has been packed of it, by coding; null when the bytes are good for one reply only. */
  packed: Map<ContentCoding, Buffer> | null;
}

/** Some 120 timelines of a day by minute, with room for their packed forms. */
const KEPT_BYTES_MAX = 16_777_216;
/** What an answer takes besides its bytes: its address, and the objects around it. */
const ANSWER_BYTES = 1_024;
/** Addresses that have been asked for once: most have 200 characters, those with a thousand hosts 33,000. */
const ASKED_CHARACTERS_MAX = 4_194_304;
/** Less than this fits into one packet of the network either way. */
const PACKED_BYTES_MIN = 1_400;

const JSON_TYPE = ['Content-Type', 'application/json; charset=utf-8'];

/** A window of 128 KB: the default of 4 MB costs memory for each answer, and gains nothing. */
const BROTLI = { [constants.BROTLI_PARAM_QUALITY]: 3, [constants.BROTLI_PARAM_LGWIN]: 17 };

const COMPRESS = {
  /** As fast as the fastest gzip (0.7 ms for a day by minute), and less than half as long. The default takes 140 ms. */
  br: (bytes: Buffer) => promisify(brotliCompress)(bytes, { params: BROTLI }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes, { level: 1 }),
} as const satisfies Record<ContentCoding, (bytes: Buffer) => Promise<Buffer>>;

/** What a request asks for: a range of time, and a way to get the bytes of the answer about it. */
interface Question {
  project: string;
  from: number;
  to: number;
  /** Whether the address will ask for the same tomorrow. */
  lasting: boolean;
  make(allocate: Allocate): Promise<Buffer>;
}

export type SendAnswer = (
  request: FastifyRequest,
  reply: FastifyReply,
  parse: () => Question,
) => MaybePromise<void>;

export function createAnswers(store: Store): SendAnswer {
  const admission = new Admission();
  const kept = new KeptAnswers();
  const buffers = new ReplyBuffers();
  const negotiate = createNegotiation();

  function keptAnswer(url: string): MaybePromise<Answer | undefined> {
    const known = kept.get(url);
    if (known === undefined) return undefined;
    return mapMaybe(store.version(known), (version) => (version === known.version ? known : undefined));
  }

  async function newAnswer(url: string | null, question: Question, allocate: Allocate): Promise<Answer> {
    const { from, to, lasting, make } = question;
    // Asked for before the counts: should they change in between, the answer only passes for older than it is.
    const version = await store.version(question);
    const etag = version === null ? undefined : `W/"${version}"`;
    const bytes = await make(allocate);
    const answer = { from, to, version, etag, marks: marksOf(etag), bytes, packed: null };
    return url !== null && lasting && version !== null ? kept.offer(url, answer) : answer;
  }

  return (request, reply, parse) => {
    const { headers } = request;
    const coding = negotiate(headers['accept-encoding']);
    const url = headers['cache-control'] === 'no-cache' ? null : request.url;
    return mapMaybe(url === null ? undefined : keptAnswer(url), (known) => {
      if (known !== undefined) return send(reply, known, coding, headers['if-none-match']);
      // What is still to be packed must stay as it is, even when the connection is closed meanwhile.
      const allocate: Allocate = (bytes) =>
        coding === undefined ? buffers.take(bytes, reply.raw) : Buffer.allocUnsafe(bytes);
      const { project_id } = request.params as { project_id: string };
      // Parsed in its turn too: a thousand hosts take a millisecond, which a refused query must not cost.
      const made = admission.run(project_id, request.caller?.user.id ?? '', async () =>
        newAnswer(url, parse(), allocate),
      );
      return made.then((answer) => send(reply, answer, coding, headers['if-none-match']));
    });
  };
}

function send(
  reply: FastifyReply,
  answer: Answer,
  coding: ContentCoding | undefined,
  known: string | undefined,
): MaybePromise<void> {
  const { etag, marks, bytes, packed } = answer;
  if (etag !== undefined && (known === '*' || known?.includes(etag))) return sendBytes(reply, 304, marks);
  if (coding === undefined || bytes.length < PACKED_BYTES_MIN)
    return sendBytes(reply, 200, [...marks, ...JSON_TYPE], bytes);
  return mapMaybe(packed?.get(coding) ?? COMPRESS[coding](bytes), (short) => {
    packed?.set(coding, short);
    sendBytes(reply, 200, [...marks, ...JSON_TYPE, 'Content-Encoding', coding], short);
  });
}

/** To be asked about each time, and by no one else: the answer is for who may read the project. */
function marksOf(etag: string | undefined): string[] {
  const vary = ['Vary', 'Accept-Encoding'];
  return etag === undefined ? vary : [...vary, 'ETag', etag, 'Cache-Control', 'private, no-cache'];
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
