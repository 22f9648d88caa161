import type { Origin, SettingName, Settings } from '../../config.ts';

export const RANGE_SETTINGS = ['from', 'to', 'last'] as const satisfies readonly SettingName[];

/** From `from` until just before `to`, in milliseconds since the epoch. */
export interface Range {
  from: number;
  to: number;
}

export function rangeProblems(origin: Origin): string[] {
  const both = origin('from') !== undefined && origin('from') === origin('last');
  return both ? ['--from and --last both say where the range begins: give one of them'] : [];
}

/** Without `--to` the range ends now; without `--from` it is as long as `--last` says. */
export function rangeOf(
  settings: Settings<(typeof RANGE_SETTINGS)[number]>,
  origin: Origin,
  now: number,
): Range {
  const to = settings.to ?? now;
  // A length on the command line wins over a start from the environment.
  if (settings.from !== undefined && origin('last') !== 'command line') return { from: settings.from, to };
  return { from: Math.max(0, to - settings.last), to };
}
