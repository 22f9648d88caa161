/** Requests as a line, attacks as bars, each on its own scale: SPARKLINE_KEY says so on the page. */
export const SPARKLINE_KEY = 'Requests (line) and attacks (bars), each on its own scale';

const WIDTH = 160;
const HEIGHT = 28;

export interface Line {
  requests: readonly number[];
  attacks: readonly number[];
}

export function Sparkline({ requests, attacks }: Line) {
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="attacks" d={bars(attacks, Math.max(...requests, 0))} />
      <path class="requests" d={line(requests)} />
    </svg>
  );
}

function line(counts: readonly number[]): string {
  const most = Math.max(...counts, 1);
  const step = WIDTH / Math.max(1, counts.length - 1);
  return counts.map((n, i) => `${i === 0 ? 'M' : 'L'}${round(i * step)} ${round(height(n, most))}`).join('');
}

/** On their own scale: few attacks among many requests would be invisible. */
function bars(counts: readonly number[], requestsMax: number): string {
  const most = Math.max(...counts, 1);
  // Below the line, if there is one.
  const scale = requestsMax === 0 ? most : Math.max(most * 1.6, requestsMax / 8);
  const step = WIDTH / Math.max(1, counts.length);
  return counts
    .map((n, i) =>
      n === 0
        ? ''
        : `M${round(i * step)} ${HEIGHT}V${round(height(n, scale))}h${round(step * 0.8)}V${HEIGHT}z`,
    )
    .join('');
}

function height(n: number, most: number): number {
  return HEIGHT - 1 - (n / most) * (HEIGHT - 3);
}

function round(n: number): number {
  return Math.round(n * 100) / 100;
}
