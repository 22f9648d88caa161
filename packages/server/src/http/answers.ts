/**
 * Statistics as they are sent: with a mark of their version, so that who asks again is told that nothing has changed;
 * packed, for who can unpack; and remembered for a while, for who asks the same (docs/decisions/0012).
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Store } from '../store/store.ts';
import type { RawQuery } from './query.ts';

interface Answer {
  from: number;
  to: number;
  version: string;
  bytes: Buffer;
  packed: Map<Coding, Buffer>;
}

/** 300 days by minute of one host, as they are sent. */
const KEPT_BYTES_MAX = 33_554_432;
/** What an answer takes besides its bytes: its address, and the objects around it. */
const ANSWER_BYTES = 1_024;
/** Less than this fits into one packet of the network either way. */
const PACKED_BYTES_MIN = 1_400;

const CODINGS = {
  /** 4: as fast as gzip, and a third smaller. The default of 11 would take a hundred times longer. */
  br: (bytes: Buffer) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes, { level: 1 }),
} as const;
type Coding = keyof typeof CODINGS;

export type SendAnswer = (
  request: FastifyRequest,
  reply: FastifyReply,
  /** Makes of the request a range of time, and a way to get the bytes of the answer about it. */
  ask: () => { from: number; to: number; make: () => Promise<Buffer> },
) => Promise<FastifyReply>;

export function createAnswers(store: Store): SendAnswer {
  /** By address, oldest first. What an address asks for is always the same, unless it says `recent`. */
  const kept = new Map<string, Answer>();
  let keptBytes = 0;

  function keep(url: string, answer: Answer): void {
    forget(url);
    kept.set(url, answer);
    keptBytes += sizeOf(url, answer);
    for (const oldest of kept.keys()) {
      if (keptBytes <= KEPT_BYTES_MAX) break;
      forget(oldest);
    }
  }

  function forget(url: string): void {
    const answer = kept.get(url);
    if (answer === undefined) return;
    keptBytes -= sizeOf(url, answer);
    kept.delete(url);
  }

  async function answerTo(request: FastifyRequest, ask: Parameters<SendAnswer>[2]): Promise<Answer> {
    const { url } = request;
    const known = request.headers['cache-control'] === 'no-cache' ? undefined : kept.get(url);
    if (known !== undefined && known.version === (await store.version(known))) return known;
    const { from, to, make } = ask();
    // Asked for before the counts: should they change in between, the answer only passes for older than it is.
    const version = await store.version({ from, to });
    const answer = { from, to, version: version ?? '', bytes: await make(), packed: new Map() };
    const moves = (request.query as RawQuery).recent !== undefined;
    if (version !== null && !moves) keep(url, answer);
    return answer;
  }

  return async (request, reply, ask) => {
    const answer = await answerTo(request, ask);
    reply.header('Vary', 'Accept-Encoding');
    if (answer.version !== '') {
      const etag = `W/"${answer.version}"`;
      // To be asked about each time, and by no one else: the answer is for who may read the project.
      reply.header('ETag', etag).header('Cache-Control', 'private, no-cache');
      if (request.headers['if-none-match']?.includes(etag)) return reply.code(304).send();
    }
    reply.type('application/json; charset=utf-8');
    const coding = acceptedCoding(request.headers['accept-encoding']);
    if (coding === undefined || answer.bytes.length < PACKED_BYTES_MIN) return reply.send(answer.bytes);
    const packed = answer.packed.get(coding) ?? (await CODINGS[coding](answer.bytes));
    answer.packed.set(coding, packed);
    return reply.header('Content-Encoding', coding).send(packed);
  };
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
