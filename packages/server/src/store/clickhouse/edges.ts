/** Which minutes a question needs as a whole, which ones it cuts, and where each number that comes back belongs. */

const MINUTE_MS = 60_000;

/** Numbers are summed by the server in slots of one width, and each slot lies in one point. */
export interface Slots {
  /** From here to there is asked for, in units of the slots (minutes or milliseconds). */
  from: number;
  to: number;
  /** What lies at x is in slot floor((x + shift) / width). */
  shift: number;
  width: number;
  pointOf(slot: number): number;
}

export interface Plan {
  /** In minutes; null when no minute is whole. The cut minutes lie in it, and are to be left out. */
  whole: Slots | null;
  /** In milliseconds; null when no minute is cut. Only what lies in the cut minutes is to be counted. */
  cut: Slots | null;
  cutMinutes: number[];
}

/** `edges` ascend, and may repeat where a range was clipped. */
export function planMinutes(edges: readonly number[]): Plan {
  const first = edges[0] ?? 0;
  const last = edges.at(-1) ?? first;
  const cutMinutes = new Set<number>();
  for (const edge of edges) if (edge % MINUTE_MS !== 0) cutMinutes.add(Math.floor(edge / MINUTE_MS));
  const from = Math.ceil(first / MINUTE_MS);
  const to = Math.floor(last / MINUTE_MS);
  const inside = [...cutMinutes].filter((minute) => from <= minute && minute < to).length;
  const isEmpty = first >= last;
  return {
    // An edge within a minute stands for the start of it here: the minute itself is left out.
    whole:
      isEmpty || to - from <= inside
        ? null
        : slots(
            edges.map((edge) => Math.floor(edge / MINUTE_MS)),
            from,
            to,
          ),
    cut: isEmpty || cutMinutes.size === 0 ? null : slots(edges, first, last),
    cutMinutes: isEmpty ? [] : [...cutMinutes],
  };
}

/** The widest slots that no inner edge cuts. */
function slots(edges: readonly number[], from: number, to: number): Slots {
  const inner = edges.slice(1, -1).filter((edge) => from < edge && edge < to);
  const anchor = inner[0] ?? from;
  const width = inner.reduce((common, edge) => divisor(common, edge - anchor), 0) || to - from;
  const shift = (width - (anchor % width)) % width;
  return { from, to, shift, width, pointOf: (slot) => pointAt(edges, Math.max(from, slot * width - shift)) };
}

function divisor(a: number, b: number): number {
  return b === 0 ? a : divisor(b, a % b);
}

/** The last point that begins at or before: those of no length come before it. */
function pointAt(edges: readonly number[], at: number): number {
  let low = 0;
  let high = edges.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((edges[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  return low;
}
