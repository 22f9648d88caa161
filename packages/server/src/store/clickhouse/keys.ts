/** What stands under which key of the ledger. Names that come from outside are encoded, so that no name makes a path. */
import { derivedId } from '../ids.ts';
import type { LinkRecord, Source } from '../store.ts';

export const projectKey = (project: string) => `project/${part(project)}`;
export const hostKey = (project: string, id: string) => `host/${part(project)}/${part(id)}`;
export const hostnameKey = (project: string, hostname: string) =>
  `hostname/${part(project)}/${part(hostname)}`;
export const sourceKey = (project: string, name: string) => `source/${part(project)}/${part(name)}`;
export const sourceHostKey = (project: string, source: string, id: string) =>
  `source-host/${part(project)}/${part(source)}/${part(id)}`;
export const batchKey = (project: string, source: string, id: string) =>
  `batch/${part(project)}/${part(source)}/${part(id)}`;
export const linksKey = (project: string, source: string, after: string) =>
  `links/${part(project)}/${part(source)}/${part(after)}`;
export const followedKey = (project: string, source: string, path: string) =>
  `followed/${part(project)}/${part(source)}/${derivedId('path', source, path)}`;

export interface ProjectValue {
  hosts: number;
}
export interface HostValue {
  hostname: string;
  created: number;
}
export type SourceValue = Omit<Source, 'hosts'>;
export interface BatchValue {
  /** The day from which on the batch may be forgotten once the horizon has reached it. */
  day: number;
  after?: string;
}
export type LinksValue = (LinkRecord & { id: string })[];

/** The parts of a key behind its first. */
export function partsOf(key: string): string[] {
  return key.split('/').slice(1).map(decodeURIComponent);
}

/** A lone surrogate has no encoding; text from outside was read as UTF-8, and holds none. */
function part(name: string): string {
  return encodeURIComponent(Buffer.from(name).toString());
}
