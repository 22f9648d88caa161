/** Which cells a query needs: hours and minutes as a whole, and single milliseconds of minutes that an edge cuts. */

/** The server sums counts in slots of equal width. Each slot is within one point. */
export interface Slots {
  /** The range to sum, in cells or milliseconds; `to` is exclusive. */
  from: number;
  to: number;
  /** x belongs to the slot floor((x + shift) / width). */
  shift: number;
  width: number;
  pointOf(slot: number): number;
}

/** Which cells of one size a query needs as a whole, and which ones it cuts. */
export interface CellPlan {
  /** In cells. Null if no cell is whole. Contains the cut cells, which must be left out. */
  whole: Slots | null;
  /** In milliseconds. Null if no cell is cut. Only events in the cut cells count. */
  cut: Slots | null;
  cutCells: number[];
}

/** `edges` are ascending, and equal where a range was clipped. */
export function planCells(edges: readonly number[], cellMs: number): CellPlan {
  const first = edges[0] ?? 0;
  const last = edges.at(-1) ?? first;
  const cutCells = new Set<number>();
  for (const edge of edges) if (edge % cellMs !== 0) cutCells.add(Math.floor(edge / cellMs));
  const from = Math.ceil(first / cellMs);
  const to = Math.floor(last / cellMs);
  const inside = [...cutCells].filter((cell) => from <= cell && cell < to).length;
  const isEmpty = first >= last;
  // An edge within a cell is rounded down here: the cell itself is left out.
  const cells = edges.map((edge) => Math.floor(edge / cellMs));
  return {
    whole: isEmpty || to - from <= inside ? null : slots(cells, from, to),
    cut: isEmpty || cutCells.size === 0 ? null : slots(edges, first, last),
    cutCells: isEmpty ? [] : [...cutCells],
  };
}

/** The widest slots that no inner edge cuts. */
function slots(edges: readonly number[], from: number, to: number): Slots {
  const inner = edges.slice(1, -1).filter((edge) => from < edge && edge < to);
  const anchor = inner[0] ?? from;
  const width = inner.reduce((common, edge) => commonDivisor(common, edge - anchor), 0) || to - from;
  const shift = (width - (anchor % width)) % width;
  return { from, to, shift, width, pointOf: (slot) => pointAt(edges, Math.max(from, slot * width - shift)) };
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** The last point that begins at or before `at`. Empty points come before it. */
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
