/** Calls the service as a connection says. */
import { type Client, type Credentials, createClient, WafstatError } from '@wafstat/client';
import { sign } from '@wafstat/signer';
import { printable } from '../../printable.ts';
import { type Io, UserError } from '../command.ts';
import type { Connection } from './connection.ts';

export interface Answer<T> {
  result: T;
  /** The answer as it came. */
  body: Uint8Array;
}

/** A failure is a UserError: one sentence of the service, with what finds it in the log of the service. */
export async function callService<T>(
  connection: Connection,
  { now, stop }: Pick<Io, 'now' | 'stop'>,
  call: (client: Client) => Promise<T>,
): Promise<Answer<T>> {
  let body = new Uint8Array();
  const client = createClient({
    url: connection.url,
    projectId: connection.project,
    credentials: credentialsOf(connection, now),
    fetch: async (input, init) => {
      const response = await fetch(input, init);
      body = new Uint8Array(await response.clone().arrayBuffer());
      return response;
    },
  });
  try {
    const result = await call(client);
    return { result, body };
  } catch (error) {
    if (stop.aborted) throw new UserError('stopped before the answer came');
    if (error instanceof WafstatError) throw new UserError(sentenceOf(error));
    throw error;
  }
}

function credentialsOf({ credentials }: Connection, now: () => number): Credentials {
  return credentials.kind === 'key'
    ? { authorize: (request) => sign(request, credentials, { now }) }
    : credentials;
}

function sentenceOf({ message, errorCode, requestId }: WafstatError): string {
  const origin = [errorCode, requestId && `request ID ${requestId}`].filter(Boolean).join(', ');
  // Words from the network must not act on the terminal.
  const words = printable(message);
  return origin === '' ? words : `${words.replace(/\.$/, '')} (${origin})`;
}
