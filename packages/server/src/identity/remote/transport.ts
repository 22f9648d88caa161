/** Calls to one service over connections that are kept, each within a time and a number at once. */
import http from 'node:http';
import https from 'node:https';
import { IdentityBusy, IdentityUnavailable } from '../unavailable.ts';

export interface Call {
  method: string;
  /** Behind the address of the service. */
  path: string;
  headers: http.OutgoingHttpHeaders;
  body?: Buffer;
}

export interface Transport {
  /** Answers when the headers are there; what comes after them comes within the same time. */
  send(call: Call): Promise<http.IncomingMessage>;
  close(): void;
}

export interface TransportLimits {
  /** For all of a call, waiting for a connection included. */
  callMsMax: number;
  /** Calls beyond it are refused: a service that has become slow must not make us collect requests. */
  calls_max: number;
}

export function createTransport(address: string, { callMsMax, calls_max }: TransportLimits): Transport {
  const base = new URL(address);
  const { request, Agent } = base.protocol === 'https:' ? https : http;
  const agent = new Agent({ keepAlive: true });
  let calls = 0;

  function sendOnce(call: Call, signal: AbortSignal): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const path = `${base.pathname.replace(/\/$/, '')}${call.path}`;
      const { hostname, port } = base;
      const options = { agent, hostname: hostname.replace(/^\[|\]$/g, ''), port, path, signal };
      const sent = request({ ...options, method: call.method, headers: call.headers }, resolve);
      sent.on('error', (error: NodeJS.ErrnoException) => {
        // A kept connection may have been closed just when we took it; nothing has been asked then.
        const again = sent.reusedSocket && error.code === 'ECONNRESET' && /^(GET|HEAD)$/.test(call.method);
        if (again && !signal.aborted) resolve(sendOnce(call, signal));
        else reject(new IdentityUnavailable(`${address} does not answer: ${reasonOf(error, callMsMax)}`));
      });
      sent.end(call.body);
    });
  }

  return {
    async send(call) {
      if (calls >= calls_max) throw new IdentityBusy(`${calls_max} calls to ${address} are under way`);
      calls++;
      try {
        const answer = await sendOnce(call, AbortSignal.timeout(callMsMax));
        answer.once('close', () => {
          calls--;
        });
        return answer;
      } catch (error) {
        calls--;
        throw error;
      }
    },
    close: () => agent.destroy(),
  };
}

function reasonOf(error: NodeJS.ErrnoException, callMsMax: number): string {
  if (error.name === 'AbortError' || error.name === 'TimeoutError') return `not within ${callMsMax} ms`;
  return error.code ?? error.message;
}
