/** A grid of equal tiles that renders only those on the screen, so that thousands are fast. */
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

interface VirtualGridProps<Item> {
  name: string;
  items: readonly Item[];
  keyOf(item: Item): string;
  tileHeight: number;
  tileWidthMin: number;
  children(item: Item): ComponentChildren;
  /** Called with the items on the screen when they or this function change. */
  onVisible?(items: readonly Item[]): void | Promise<void>;
}

/** Rows beyond the screen, for scrolling. */
const SPARE_ROWS = 3;
const GAP = 12;

export function VirtualGrid<Item>(props: VirtualGridProps<Item>) {
  const { name, items, keyOf, tileHeight, tileWidthMin, children, onVisible } = props;
  const box = useRef<HTMLUListElement>(null);
  const [{ columns, first, last }, setWindow] = useState({ columns: 1, first: 0, last: 0 });
  const rowHeight = tileHeight + GAP;
  useLayoutEffect(() => {
    const measure = () => {
      if (box.current === null) return;
      const { top, width } = box.current.getBoundingClientRect();
      const nextColumns = Math.max(1, Math.floor((width + GAP) / (tileWidthMin + GAP)));
      const nextFirst = Math.max(0, Math.floor(-top / rowHeight) - SPARE_ROWS);
      const nextLast = Math.ceil((innerHeight - top) / rowHeight) + SPARE_ROWS;
      setWindow((old) =>
        old.columns === nextColumns && old.first === nextFirst && old.last === nextLast
          ? old
          : { columns: nextColumns, first: nextFirst, last: nextLast },
      );
    };
    measure();
    addEventListener('scroll', measure, { passive: true });
    addEventListener('resize', measure);
    return () => {
      removeEventListener('scroll', measure);
      removeEventListener('resize', measure);
    };
  }, [rowHeight, tileWidthMin, items.length]);
  const rows = Math.ceil(items.length / columns);
  const end = Math.min(rows, last);
  const start = Math.min(first, end);
  const visible = items.slice(start * columns, end * columns);
  const visibleKey = visible.map(keyOf).join();
  useEffect(() => void onVisible?.(visible), [visibleKey, onVisible]);
  return (
    <ul
      class="tiles"
      aria-label={name}
      ref={box}
      style={{
        gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`,
        gridAutoRows: `${tileHeight}px`,
        paddingTop: `${start * rowHeight}px`,
        paddingBottom: `${Math.max(0, rows - end) * rowHeight}px`,
      }}
    >
      {visible.map((item) => (
        <li key={keyOf(item)}>{children(item)}</li>
      ))}
    </ul>
  );
}
