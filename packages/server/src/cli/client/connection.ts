/** Where the service is, and who calls. What a profile holds. */
export interface Connection {
  url: string;
  project: string;
  credentials: Credentials;
}

export type Credentials =
  | { kind: 'key'; access: string; secret: string }
  | { kind: 'password'; user: string; domain: string; password: string }
  | { kind: 'token'; token: string };
