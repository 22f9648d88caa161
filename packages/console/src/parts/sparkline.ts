/** A small line for a row of a table: requests as a line, attacks as bars, each on its own scale. */
const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 160;
const HEIGHT = 28;

export function sparkline(requests: readonly number[], attacks: readonly number[]): SVGSVGElement {
  const svg = element('svg', {
    class: 'sparkline',
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    'aria-hidden': 'true',
  }) as SVGSVGElement;
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.append(
    element('path', { class: 'attacks', d: bars(attacks, Math.max(...requests, 1)) }),
    element('path', { class: 'requests', d: line(requests) }),
  );
  return svg;
}

function line(counts: readonly number[]): string {
  const most = Math.max(...counts, 1);
  const step = WIDTH / Math.max(1, counts.length - 1);
  return counts.map((n, i) => `${i === 0 ? 'M' : 'L'}${round(i * step)} ${round(height(n, most))}`).join('');
}

/** Attacks are a part of the requests where there are many, and on their own scale where they would not be seen. */
function bars(counts: readonly number[], requests_most: number): string {
  const most = Math.max(...counts, 1);
  const scale = Math.max(most * 1.6, requests_most / 8);
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

function element(name: string, attributes: Readonly<Record<string, string>>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
