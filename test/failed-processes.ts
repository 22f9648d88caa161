/** A setup file of black-box tests: a failed test prints the end of the log of each process that ran during it. */
import { afterEach, beforeEach } from 'vitest';
import { recentProcesses } from './process.ts';

beforeEach(() => {
  for (const process of recentProcesses) if (process.hasEnded) recentProcesses.delete(process);
});

afterEach(({ task }) => {
  if (task.result?.state !== 'fail') return;
  for (const process of recentProcesses)
    console.error(`Ran during the failed test: ${process.describeEnd()}`);
});
