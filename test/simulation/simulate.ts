/** One run of the simulation, and the search for the shortest one that fails. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { observeRareStates, RARE_STATES, type RareState } from '../../packages/server/src/rare-states.ts';
import { DAY_MS } from './scheduler.ts';
import { World } from './world.ts';

const YEAR_MS = 365.25 * DAY_MS;

export interface RunOptions {
  seed: number;
  years: number;
  /** Ends the run after so many events. */
  eventsMax?: number;
  trace?: (line: string) => void;
}

export type Report = Awaited<ReturnType<typeof simulate>>;

export async function simulate({ seed, years, eventsMax, trace }: RunOptions) {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-simulation-'));
  const reached = new Set<RareState>();
  observeRareStates((state) => reached.add(state));
  const world = new World(seed, join(directory, 'statistics.mdb'), trace);
  let failure: unknown = null;
  let digest = '';
  try {
    await world.run(years * YEAR_MS, eventsMax);
  } catch (error) {
    failure = error;
  } finally {
    digest = world.scheduler.digest();
    observeRareStates(() => {});
    await world.close();
    rmSync(directory, { recursive: true });
  }
  return {
    seed,
    days: world.simulatedMs / DAY_MS,
    lines: world.ledger.written,
    steps: world.scheduler.steps,
    ...world.counts,
    // A run of this many events is the same up to here: what fails between two events needs the next one.
    eventsToRepeat: world.counts.events + (world.counts.events === eventsMax ? 0 : 1),
    reached,
    digest,
    failure,
  };
}

/** The smallest number of events that it finds after which the same seed fails. `attemptsMax` bounds the search. */
export async function shortestFailure(
  seed: number,
  events: number,
  attemptsMax = 12,
): Promise<Report | null> {
  let shortest: Report | null = null;
  let [passes, fails] = [0, events];
  for (let attempt = 0; attempt < attemptsMax && fails - passes > 1; attempt++) {
    const eventsMax = Math.floor((passes + fails) / 2);
    const report = await simulate({ seed, years: Number.POSITIVE_INFINITY, eventsMax });
    if (report.failure === null) passes = eventsMax;
    else {
      fails = Math.min(eventsMax, report.eventsToRepeat);
      shortest = report;
    }
  }
  return shortest;
}

export function unreached({ reached }: Pick<Report, 'reached'>): RareState[] {
  return RARE_STATES.filter((state) => !reached.has(state));
}
