/** The tables of the dashboard: bars, of which the first is the longest. */
import type { ComponentChildren } from 'preact';

/** All tables fit on one screen. */
export const TOP_ROWS = 8;

interface RankingProps {
  class?: 'ranking' | 'bars';
  /** Titles of the columns, for screen readers. */
  columns: readonly string[];
  isLoading?: boolean;
  children: ComponentChildren;
}

export function Ranking({
  class: className = 'ranking',
  columns,
  isLoading = false,
  children,
}: RankingProps) {
  return (
    <table class={className}>
      <thead class="offscreen">
        <tr>
          {columns.map((title) => (
            <th key={title} scope="col">
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {isLoading && Array.from({ length: TOP_ROWS }, (_, i) => <SkeletonRow key={String(i)} />)}
        {children}
      </tbody>
    </table>
  );
}

function SkeletonRow() {
  return (
    <tr>
      <th scope="row">
        <span class="skeleton" />
      </th>
      <td />
    </tr>
  );
}
