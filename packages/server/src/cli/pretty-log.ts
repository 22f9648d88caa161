/** Log lines for people: the format of the log on a terminal. */
import type { AuditRecord } from '../audit/audit-trail.ts';
import { printable } from '../printable.ts';
import { objectOf } from './audit.ts';
import { hasColors, type Io, type Style, styled } from './command.ts';

const LEVELS: Readonly<Record<number, readonly [name: string, style: Style]>> = {
  10: ['trace', 'bold'],
  20: ['debug', 'bold'],
  30: ['info', 'cyan'],
  40: ['warn', 'yellow'],
  50: ['error', 'red'],
  60: ['fatal', 'red'],
};

interface LogLine {
  level: number;
  time: number;
  msg?: string;
  /** The ID of the request that the line is about. */
  reqId?: string;
  err?: { message?: string; stack?: string };
  audit?: AuditRecord;
}

/** Converts lines of JSON: to `14:03:07 warn the disk is full`, or only makes them safe to print. */
export function logFormatter(format: 'pretty' | 'json' | undefined, io: Pick<Io, 'stderr' | 'env'>) {
  const isPretty = (format ?? (io.stderr.isTTY ? 'pretty' : 'json')) === 'pretty';
  const isColored = hasColors(io.stderr, io);
  return {
    isPretty,
    format(json: string): string {
      if (!isPretty) return `${printable(json.trimEnd())}\n`;
      const { level, time, msg, reqId, err, audit }: LogLine = JSON.parse(json);
      const [name, style] = LEVELS[level] ?? [`level ${level}`, 'bold'];
      const text = audit
        ? `audit: ${audit.user ?? 'unknown user'}: ${audit.action} ${objectOf(audit)} (${audit.outcome})`
        : (msg ?? err?.message ?? json);
      const first = reqId === undefined ? text : `${text} (request ${reqId})`;
      const lines = [first, ...(err?.stack?.split('\n') ?? [])].map(printable);
      return `${new Date(time).toTimeString().slice(0, 8)} ${styled(name, style, isColored)} ${lines.join('\n')}\n`;
    },
  };
}
