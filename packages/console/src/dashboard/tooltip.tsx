/** The exact values of a point, or of the selected points. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { total } from '../counts.ts';
import { formatRange } from '../format.ts';
import type { ChartProps } from './chart.tsx';
import { countText, type Pane } from './pane.ts';

/** More rows would not fit into a low chart. */
const ROWS_MAX = 6;
const ANNOTATIONS_MAX = 3;

interface TooltipProps extends ChartProps {
  index: number;
  selection: { anchor: number; end: number } | null;
  /** The middle of the point. */
  left: number;
  /** The width of the chart. */
  width: number;
}

export function Tooltip(props: TooltipProps) {
  const { panes, edges, zone, unfinished, annotations, index, selection, left, width } = props;
  const box = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState(0);
  const first = selection === null ? index : Math.min(selection.anchor, selection.end);
  const last = selection === null ? index : Math.max(selection.anchor, selection.end);
  useLayoutEffect(() => {
    const own = box.current?.offsetWidth ?? 0;
    const beside = left < width / 2 ? left + 14 : left - 14 - own;
    setPlace(Math.max(0, Math.min(beside, width - own)));
  });
  const [from = 0, to = 0] = [edges[first], edges[last + 1]];
  const happened = annotations.filter(({ time }) => time >= from && time < to);
  const isUnfinished = unfinished && last === edges.length - 2;
  return (
    <div class="tooltip" role="status" ref={box} style={{ left: `${place}px` }}>
      <strong>
        {formatRange(from, to, zone)}
        {isUnfinished && <span class="faint"> so far</span>}
      </strong>
      {happened.slice(0, ANNOTATIONS_MAX).map(({ id, text }) => (
        <span key={id} class="cut">
          {text}
        </span>
      ))}
      {happened.length > ANNOTATIONS_MAX && <span>{`and ${happened.length - ANNOTATIONS_MAX} more`}</span>}
      {panes.map((pane) => (
        <PaneRows key={pane.name} pane={pane} first={first} last={last} />
      ))}
    </div>
  );
}

/** A stack shows the largest counts of the point, and their sum. */
function PaneRows({ pane, first, last }: { pane: Pane; first: number; last: number }) {
  const countOf = (counts: readonly number[]) => total(counts.slice(first, last + 1));
  const all = pane.layers.map((layer) => ({ ...layer, count: countOf(layer.counts) }));
  const before = pane.ghost === null ? null : countOf(pane.ghost);
  const some = all.filter(({ count }) => count > 0).toSorted((a, b) => b.count - a.count);
  const listed = some.length > ROWS_MAX ? some.slice(0, ROWS_MAX - 1) : some;
  const rest = some.slice(listed.length);
  return (
    <>
      <span class={`key sum ${pane.name}`}>
        {pane.title}
        {before !== null && <span class="faint">{`previous ${countText(pane, before)}`}</span>}
        <b>{countText(pane, total(all.map(({ count }) => count)))}</b>
      </span>
      {pane.kind !== 'area' &&
        listed.map(({ key, title, colour, count }) => (
          <span key={key} class={`key ${key}`} style={{ '--key': `var(--${colour})` }}>
            {title}
            <b>{countText(pane, count)}</b>
          </span>
        ))}
      {pane.kind !== 'area' && rest.length > 0 && (
        <span class="key" style={{ '--key': 'var(--edge)' }}>
          {`${rest.length} more`}
          <b>{countText(pane, total(rest.map(({ count }) => count)))}</b>
        </span>
      )}
    </>
  );
}
