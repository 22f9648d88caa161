import { parseEvent } from './formats/events.ts';
import type { Parsed } from './formats/format.ts';

export const FORMAT_NAMES = ['auto', 'events'] as const;
export type FormatName = (typeof FORMAT_NAMES)[number];

export interface ReaderOptions {
  format: (typeof FORMAT_NAMES)[number];
  host?: string | undefined;
  offset_minutes?: number | undefined;
}

export interface LineReader {
  read(line: string, now: number): Parsed[];
  flush(before?: number): Parsed[];
  state(): string;
}

export function createReader(_options: ReaderOptions, _state = ''): LineReader {
  return { read: (line) => [parseEvent(line)], flush: () => [], state: () => '' };
}
