/** What a log format is: a pure function from one line to a record that can be counted, or the reason why not. */
import type { Category, DropReason } from '../../event.ts';

export interface LogRecord {
  /** Milliseconds since the epoch. */
  time: number;
  host?: string | undefined;
  hostId?: string | undefined;
  request: boolean;
  attack: Category | null;
  count: number;
}

export type Parsed =
  | { kind: 'record'; record: LogRecord; format: string }
  | { kind: 'dropped'; reason: DropReason; format: string };
