export type RequestHeaders = Readonly<Record<string, string>>;

export interface OutgoingRequest {
  method: 'GET';
  url: string;
  headers: RequestHeaders;
}

/** Gives the headers that authorize a request. A function that signs requests fits as it is. */
export interface Authorize {
  (request: OutgoingRequest): RequestHeaders | Promise<RequestHeaders>;
  /** Told the headers that a 401 answered. With it, the call is authorized and sent once more; without, it fails. */
  refused?: (authorization: RequestHeaders) => void;
}

/** For a token that was obtained elsewhere: it lasts at most 24 hours and is not renewed. */
export function tokenAuthorizer(token: string): Authorize {
  return () => ({ 'X-Auth-Token': token });
}
