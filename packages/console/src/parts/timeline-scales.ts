/** The numbers behind the drawing: what is plotted, and on which scales. */
import type uPlot from 'uplot';
import type { SeriesName } from '../address.ts';
import type { Points } from '../points.ts';

/** From here on one scale would press the attacks into the ground. */
const TWO_SCALES_FROM = 4;
/** On a scale of their own they stay in the lower part, out of the way of the requests. */
const HEADROOM = 1.9;

/** The last value stands twice, at the beginning and at the end of its point. */
export function plotData({ edges, requests, attacks }: Points): uPlot.AlignedData {
  return [edges, [...requests, requests.at(-1) ?? 0], [...attacks, attacks.at(-1) ?? 0]];
}

export function scalesOf(points: Points | undefined, hidden: readonly SeriesName[]) {
  const most = (counts: readonly number[] = []) => counts.reduce((max, n) => Math.max(max, n), 0);
  const requests = hidden.includes('requests') ? 0 : most(points?.requests);
  const attacks = hidden.includes('attacks') ? 0 : most(points?.attacks);
  const two = requests > 0 && attacks > 0 && requests / attacks >= TWO_SCALES_FROM;
  const both = Math.max(requests, attacks, 1) * 1.08;
  return { two, requests: both, attacks: two ? Math.max(attacks * HEADROOM, 2) : both };
}

/** Counts are whole. */
export const WHOLE_STEPS = Array.from({ length: 15 }, (_, power) =>
  [1, 2, 5].map((n) => n * 10 ** power),
).flat();

export function axisWidth(u: uPlot, values: string[] | null): number {
  const letter = Number.parseFloat(getComputedStyle(u.root).fontSize) * 0.5;
  return 18 + Math.max(2, ...(values ?? []).map((text) => text.length)) * letter;
}
