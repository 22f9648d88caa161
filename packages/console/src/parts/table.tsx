/** Tables that sort by their headers, and become lists on narrow screens. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { formatCount } from '../format.ts';
import { Button } from './button.tsx';

export interface Column<Row> {
  title: string;
  cell(row: Row): ComponentChildren;
  /** Left out on a tablet. */
  isWide?: boolean;
  /** Aligned to the right, with digits of equal width. */
  isNumber?: boolean;
  /** Ascending. Without it, the header does not sort. */
  compare?(a: Row, b: Row): number;
  /** The first click on the header sorts the largest first. */
  largestFirst?: boolean;
  /** The title is for screen readers only: for buttons. */
  hideTitle?: boolean;
}

export interface Sort {
  /** Title of the column. */
  by: string;
  descending: boolean;
}

/** Longer tables scroll in their own box, with the headers in view. Others are shown whole: a box would hide rows. */
const WHOLE_ROWS_MAX = 30;

interface TableProps<Row> {
  /** For screen readers. */
  name: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf(row: Row): string;
  /** How the rows are sorted first. Without it, in the given order. */
  initialSort?: Sort;
  /** Set both if the order is stored elsewhere: the rows are then already sorted. */
  sort?: Sort;
  onSort?(sort: Sort): void;
}

export function Table<Row>({ name, columns, rows, keyOf, initialSort, sort, onSort }: TableProps<Row>) {
  const [own, setOwn] = useState<Sort | undefined>(initialSort);
  const current = sort ?? own;
  const shown = sort === undefined && own !== undefined ? sorted(rows, columns, own) : rows;
  return (
    <div
      class={`table ${rows.length > WHOLE_ROWS_MAX ? 'long' : ''}`}
      tabIndex={0}
      role="region"
      aria-label={name}
    >
      <NarrowSort columns={columns} sort={current} onSort={onSort ?? setOwn} />
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <HeaderCell key={column.title} column={column} sort={current} onSort={onSort ?? setOwn} />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ title, cell, isNumber, isWide, hideTitle }) => (
                <td key={title} class={classOf(isNumber, isWide)} data-title={hideTitle ? undefined : title}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface NarrowSortProps<Row> {
  columns: readonly Column<Row>[];
  sort: Sort | undefined;
  onSort(sort: Sort): void;
}

/** On narrow screens, where there are no headers. */
function NarrowSort<Row>({ columns, sort, onSort }: NarrowSortProps<Row>) {
  const sortable = columns.filter(({ compare }) => compare !== undefined);
  if (sort === undefined || sortable.length === 0) return null;
  const choose = (title: string) => {
    const column = sortable.find((one) => one.title === title);
    onSort({ by: title, descending: column?.largestFirst ?? false });
  };
  return (
    <label class="narrow-sort">
      Sort by
      <select value={sort.by} onChange={(event) => choose(event.currentTarget.value)}>
        {sortable.map(({ title }) => (
          <option key={title} value={title}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

function classOf(isNumber = false, isWide = false): string | undefined {
  return [isNumber && 'number', isWide && 'wide'].filter(Boolean).join(' ') || undefined;
}

interface HeaderProps<Row> {
  column: Column<Row>;
  sort: Sort | undefined;
  onSort(sort: Sort): void;
}

function HeaderCell<Row>({ column, sort, onSort }: HeaderProps<Row>) {
  const { title, isNumber, isWide, compare, largestFirst = false, hideTitle } = column;
  const isSorted = sort?.by === title;
  const descending = isSorted ? !sort.descending : largestFirst;
  const direction = isSorted ? (sort.descending ? 'descending' : 'ascending') : undefined;
  return (
    <th scope="col" class={classOf(isNumber, isWide)} aria-sort={direction}>
      {compare === undefined ? (
        <span class={hideTitle ? 'offscreen' : undefined}>{title}</span>
      ) : (
        <button class="sort" type="button" onClick={() => onSort({ by: title, descending })}>
          {title}
          <span class="arrow" aria-hidden="true">
            {direction === 'descending' ? '▼' : direction === 'ascending' ? '▲' : ''}
          </span>
        </button>
      )}
    </th>
  );
}

export function sorted<Row>(rows: readonly Row[], columns: readonly Column<Row>[], { by, descending }: Sort) {
  const compare = columns.find(({ title }) => title === by)?.compare;
  if (compare === undefined) return rows;
  return rows.toSorted((a, b) => (descending ? compare(b, a) : compare(a, b)));
}

/** For `compare` of a column of texts. */
export function byText<Row>(textOf: (row: Row) => string): (a: Row, b: Row) => number {
  return (a, b) => textOf(a).localeCompare(textOf(b), 'en', { numeric: true });
}

/** For `compare` of a column of numbers or times. */
export function byNumber<Row>(numberOf: (row: Row) => number): (a: Row, b: Row) => number {
  return (a, b) => numberOf(a) - numberOf(b);
}

/** A column of counts. */
export function numberColumn<Row>(title: string, numberOf: (row: Row) => number): Column<Row> {
  const cell = (row: Row) => formatCount(numberOf(row));
  return { title, isNumber: true, largestFirst: true, cell, compare: byNumber(numberOf) };
}

export function enabledColumn<Row extends { enabled: boolean }>(): Column<Row> {
  return {
    title: 'State',
    cell: ({ enabled }) => (
      <StateLabel kind={enabled ? 'active' : 'off'} text={enabled ? 'Enabled' : 'Disabled'} />
    ),
    compare: byNumber(({ enabled }) => Number(enabled)),
  };
}

/** The last column: buttons. */
export function actionsColumn<Row>(buttons: (row: Row) => ComponentChildren): Column<Row> {
  return { title: 'Actions', hideTitle: true, isNumber: true, cell: buttons };
}

/** The name of a row, cut if it is too long. */
export function RowName({ name }: { name: string }) {
  return (
    <strong class="cut" title={name}>
      {name}
    </strong>
  );
}

interface RowButtonProps {
  label: string;
  /** Tells screen readers which row. */
  name: string;
  onClick(): void;
}

export function RowButton({ label, name, onClick }: RowButtonProps) {
  return (
    <Button kind="small" aria-label={`${label} ${name}`} onClick={onClick}>
      {label}
    </Button>
  );
}

export function StateLabel({ kind, text }: { kind: 'active' | 'off' | 'silent'; text: string }) {
  return <span class={`state ${kind}`}>{text}</span>;
}
