/** Panes with one time axis and one cursor. Drag, touch or use the keyboard to read and to zoom. */
import type { Annotation, Burst } from '@wafstat/client';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { clock, day, formatCount, formatRange, shortTime } from '../format.ts';
import { countTicks } from '../points.ts';
import { onTheme, remPx } from '../theme.ts';
import type { Zone } from '../zone.ts';
import { axisText, drawPane, maximum, type Pane, paddingRight, stackHeights } from './pane.ts';
import { Tooltip } from './tooltip.tsx';

export interface ChartProps {
  panes: readonly Pane[];
  /** One more than there are points: point i is from `edges[i]` to `edges[i + 1]`. */
  edges: readonly number[];
  zone: Zone;
  /** The earliest event of the project: there is no data before it. */
  firstSeen: number | null;
  /** The current time, if it is in the last point, which can still grow. */
  unfinished: boolean;
  bursts: readonly Burst[];
  annotations: readonly Annotation[];
  /** For screen readers. */
  label: string;
  zoom(from: number, to: number): void;
  showBurst(burst: Burst): void;
  showAnnotation(id: string): void;
}

const STRIP_REM = 1.7;
/** In less space, a text says nothing. */
const LABEL_REM_MIN = 4;

/** Annotations nearer than this are one mark, in pixels: room for how many they are, and to click. */
const MARK_PX_MIN = 40;

/** The marks of annotations, each with the oldest of those that it stands for. From the newest to the oldest, like the annotations. */
function groupNear(annotations: readonly Annotation[], left: (time: number) => number) {
  const marks: (Annotation & { newest: number; count: number })[] = [];
  for (const annotation of annotations) {
    const mark = marks.at(-1);
    if (mark && left(mark.newest) - left(annotation.time) < MARK_PX_MIN)
      Object.assign(mark, annotation, { count: mark.count + 1 });
    else marks.push({ ...annotation, newest: annotation.time, count: 1 });
  }
  return marks;
}

/** From the first to the last of these points. */
interface Selection {
  anchor: number;
  end: number;
}

export function Chart(props: ChartProps) {
  const { panes, edges, zone, firstSeen, unfinished, bursts, annotations, label, zoom, showBurst } = props;
  const box = useRef<HTMLDivElement>(null);
  const size = useSize(box);
  const [cursor, setCursor] = useState<number | null>(null);
  const [selection, setSelection] = useState<Selection | null>(null);
  const last = edges.length - 2;
  // The point of the earliest event, or 0.
  const firstPoint = Math.max(0, edges.findIndex((edge) => edge > (firstSeen ?? 0)) - 1);
  const plot = plotArea(panes, size.width);
  const left = (edge: number) =>
    plot.left + ((edge - (edges[0] ?? 0)) / Math.max(1, (edges.at(-1) ?? 1) - (edges[0] ?? 0))) * plot.width;
  const pointAt = (clientX: number) => {
    const x = clientX - (box.current?.getBoundingClientRect().left ?? 0);
    const after = edges.findIndex((edge) => left(edge) > x);
    return Math.min(last, Math.max(0, (after === -1 ? edges.length : after) - 1));
  };
  const zoomTo = ({ anchor, end }: Selection) => {
    const [from, to] = [edges[Math.min(anchor, end)], edges[Math.max(anchor, end) + 1]];
    setSelection(null);
    setCursor(null);
    if (from !== undefined && to !== undefined && from < to) zoom(from, to);
  };
  const pointer = usePointer(pointAt, setCursor, setSelection, zoomTo);
  const onKeyDown = (event: KeyboardEvent) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
    if (steps !== undefined) {
      const at = cursor === null ? (steps > 0 ? -1 : last + 1) : cursor;
      const next = Math.min(last, Math.max(0, at + steps));
      setCursor(next);
      setSelection(event.shiftKey ? { anchor: selection?.anchor ?? Math.max(0, at), end: next } : null);
    } else if (event.key === 'Enter' && cursor !== null) zoomTo(selection ?? { anchor: cursor, end: cursor });
    else if (event.key === 'Escape' && (selection ?? cursor) !== null) {
      setSelection(null);
      setCursor(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const between = (from: number, to: number) => {
    const [start, end] = [left(from), left(to)];
    return { left: `${start}px`, width: `${Math.max(1, end - start)}px` };
  };
  const band = (from: number, to: number) => between(edges[from] ?? 0, edges[to + 1] ?? 0);
  const [start = 0, end = 0] = [edges[0], edges.at(-1)];
  const marked = annotations.filter(({ time }) => time >= start && time < end);
  const marks = groupNear(marked, left);
  const pointOf = (time: number) => edges.findLastIndex((edge) => edge <= time);
  // Their texts are above the panes.
  const strip = marked.length === 0 ? 0 : Math.round(remPx() * STRIP_REM);
  return (
    <div
      class="chart"
      role="img"
      aria-label={label}
      tabIndex={0}
      ref={box}
      style={{ '--strip': `${strip}px`, paddingTop: `${strip}px` }}
      onKeyDown={onKeyDown}
      onBlur={() => {
        setCursor(null);
        setSelection(null);
      }}
      {...pointer}
    >
      {size.width > 0 &&
        panes.map((pane, i) => (
          <PaneCanvas
            key={pane.name}
            pane={pane}
            edges={edges}
            zone={zone}
            width={size.width}
            height={paneHeight(size.height - strip, i, panes.length)}
            axisWidth={plot.left}
            hasTimeAxis={i === panes.length - 1}
            firstPoint={firstPoint}
          />
        ))}
      {bursts
        .filter(({ from, to }) => to > start && from < end)
        .map((burst) => (
          <div
            key={burst.from}
            class="burst-band"
            style={between(Math.max(start, burst.from), Math.min(end, burst.to))}
          >
            {/* The list of bursts has the same link for the keyboard. */}
            <span
              class="burst-mark"
              title={`Burst: ${formatRange(burst.from, burst.to, zone)}. Click to show its attacks`}
              onPointerDown={(event) => event.stopPropagation()}
              onPointerUp={() => showBurst(burst)}
            />
          </div>
        ))}
      {marks.map(({ id, time, text, newest, count }, i) => {
        const width = left(marks[i - 1]?.newest ?? end) - left(newest);
        const shown = count > 1 ? `${count} annotations` : text;
        const [from = start, to = end] = [pointOf(time), pointOf(newest) + 1].map((edge) => edges[edge]);
        const canZoom = count > 1 && to - from < end - start;
        const hint = canZoom ? 'Click to zoom in' : 'Click to compare before and after';
        return (
          <div key={id} class="annotation" style={{ left: `${left(newest)}px`, width: `${width}px` }}>
            {/* biome-ignore lint/a11y/useKeyWithClickEvents: the list of annotations has the same link for the keyboard */}
            <span
              title={`${shown}, ${shortTime(time, zone, end - 1)}. ${hint}`}
              onPointerDown={(event) => event.stopPropagation()}
              onClick={() => (canZoom ? zoom(from, to) : props.showAnnotation(id))}
            >
              {width > LABEL_REM_MIN * remPx() ? shown : count > 1 && count}
            </span>
          </div>
        );
      })}
      {firstPoint > 0 && firstSeen !== null && (
        <div class="no-data" style={band(0, firstPoint - 1)}>
          <span>{`No data before ${day(firstSeen, zone)}, ${clock(firstSeen, zone)}`}</span>
        </div>
      )}
      {unfinished && last >= 0 && (
        <div class="unfinished" style={band(last, last)} title="This point is not over yet." />
      )}
      {cursor !== null && selection === null && <div class="band" style={band(cursor, cursor)} />}
      {selection !== null && (
        <div
          class="selection"
          style={band(Math.min(selection.anchor, selection.end), Math.max(selection.anchor, selection.end))}
        />
      )}
      {cursor !== null && cursor <= last && (
        <Tooltip
          {...props}
          index={cursor}
          selection={selection}
          left={left((edges[cursor] ?? 0) / 2 + (edges[cursor + 1] ?? 0) / 2)}
          width={size.width}
        />
      )}
    </div>
  );
}

/** A drag with the mouse or a finger selects. */
function usePointer(
  pointAt: (clientX: number) => number,
  setCursor: (index: number | null) => void,
  setSelection: (selection: Selection | null) => void,
  zoomTo: (selection: Selection) => void,
) {
  const pressed = useRef<{ x: number; anchor: number; isDrag: boolean } | null>(null);
  return {
    onPointerDown(event: PointerEvent & { currentTarget: HTMLElement }) {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      pressed.current = { x: event.clientX, anchor: pointAt(event.clientX), isDrag: false };
      setCursor(pointAt(event.clientX));
    },
    onPointerMove({ clientX }: PointerEvent) {
      const end = pointAt(clientX);
      setCursor(end);
      const start = pressed.current;
      if (start === null) return;
      start.isDrag ||= Math.abs(clientX - start.x) > 4;
      if (start.isDrag) setSelection({ anchor: start.anchor, end });
    },
    onPointerUp({ clientX }: PointerEvent) {
      const start = pressed.current;
      pressed.current = null;
      if (start?.isDrag) zoomTo({ anchor: start.anchor, end: pointAt(clientX) });
    },
    onPointerCancel() {
      pressed.current = null;
      setSelection(null);
    },
    onPointerLeave(event: PointerEvent) {
      // A tap leaves the tooltip open.
      if (pressed.current === null && event.pointerType === 'mouse') setCursor(null);
    },
  };
}

interface PaneCanvasProps {
  pane: Pane;
  edges: readonly number[];
  zone: Zone;
  width: number;
  height: number;
  axisWidth: number;
  hasTimeAxis: boolean;
  firstPoint: number;
}

function PaneCanvas({ pane, edges, zone, ...size }: PaneCanvasProps) {
  const { axisWidth } = size;
  const target = useRef<HTMLDivElement>(null);
  const [theme, setTheme] = useState(0);
  useEffect(() => onTheme(() => setTheme((n) => n + 1)), []);
  useLayoutEffect(() => {
    if (target.current === null || edges.length < 2) return;
    const plot = drawPane(target.current, pane, edges, zone, size);
    return () => plot.destroy();
  }, [pane, edges, zone, ...Object.values(size), theme]);
  return (
    <div class={`pane ${pane.name}`}>
      <h3 style={{ left: `${axisWidth + 6}px` }}>
        {pane.title}
        <span class="peak">{peakText(pane, edges, zone)}</span>
      </h3>
      <div ref={target} />
    </div>
  );
}

/** When the highest point was. Lines have one each. */
function peakText({ kind, layers }: Pane, edges: readonly number[], zone: Zone): string {
  const counts = kind === 'stack' ? stackHeights(layers).at(-1) : layers[0]?.counts;
  const most = Math.max(0, ...(counts ?? []));
  if (kind === 'lines' || most === 0) return '';
  const time = edges[counts?.indexOf(most) ?? 0] ?? 0;
  return `peak ${formatCount(most)}, ${shortTime(time, zone, (edges.at(-1) ?? 0) - 1).slice(0, -3)}`;
}

/** The last pane has the time axis, too. */
function paneHeight(height: number, index: number, count: number): number {
  const axis = remPx() * 2.9;
  const each = (height - axis) / count;
  return Math.floor(index === count - 1 ? each + axis : each);
}

function plotArea(panes: readonly Pane[], width: number): { left: number; width: number } {
  const labels = panes.flatMap((pane) => countTicks(maximum(pane)).map((n) => axisText(pane, n)));
  const letters = Math.max(3, ...labels.map((label) => label.length));
  const left = Math.round(16 + letters * remPx() * 0.5);
  return { left, width: Math.max(1, width - left - paddingRight()) };
}

function useSize(box: { current: HTMLElement | null }): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => {
      const { clientWidth: width = 0, clientHeight: height = 0 } = box.current ?? {};
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    if (box.current !== null) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return size;
}
