/**
 * A setup file of every run: appends the processor time of each test file, with that of the processes that it has started and
 * ended, to the file that TEST_TIMES names. Durations say little, because files run concurrently, and often wait.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import { afterAll, expect } from 'vitest';

const { TEST_TIMES: times } = process.env;

if (times !== undefined && process.platform === 'linux') {
  const before = usedSeconds();
  afterAll(() => {
    const used = { name: expect.getState().testPath, seconds: usedSeconds() - before };
    appendFileSync(times, `${JSON.stringify(used)}\n`);
  });
}

function usedSeconds(): number {
  // User and system time of this process and of its children, in ticks of 10 ms.
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? [];
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
}
