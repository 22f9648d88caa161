/**
 * Time in which this process runs. After it was busy or stopped for a while, its timers fire before it reads what has
 * arrived meanwhile: a plain timeout would blame the server, or cut off a client whose request waits to be read.
 */
const STEPS = 10;

interface Running {
  stop(): void;
  /** The process may end before the time is over. */
  unref(): void;
}

/** Calls `end` after this time, counted in steps: however long the process was stopped, that is one step. */
export function afterRunning(timeMs: number, end: () => void): Running {
  let steps = 0;
  let last: NodeJS.Immediate | undefined;
  const timer = setInterval(() => {
    if (++steps < STEPS) return;
    clearInterval(timer);
    // Reads first, in case that it was stopped in the last step.
    last = setImmediate(end);
  }, timeMs / STEPS);
  return {
    stop() {
      clearInterval(timer);
      clearImmediate(last);
    },
    unref: () => void timer.unref(),
  };
}
