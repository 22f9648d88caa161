/** The active filters. A click on one removes it. */
import type { Kept } from '../api.ts';
import { useApp } from '../app.ts';
import { filterTitle, toggled } from '../filters.ts';
import { formatCount } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { Icon } from '../parts/icon.tsx';
import type { View } from '../view.ts';

interface FiltersProps {
  /** Of hosts, by ID. */
  names: ReadonlyMap<string, string>;
  /** What the filters could select from, if not from all attacks. */
  kept: Kept | undefined;
}

export function Filters({ names, kept }: FiltersProps) {
  const { view, go } = useApp();
  const { hosts, filters } = view;
  const chip = (text: string, change: Partial<View>) => (
    <button
      key={text}
      class="chip"
      type="button"
      aria-label={`${text}. Remove the filter`}
      onClick={() => go(change)}
    >
      <span class="cut">{text}</span>
      <Icon name="close" />
    </button>
  );
  const chips = [
    ...hosts.map((id) =>
      chip(`Host: ${names.get(id) ?? id}`, { hosts: hosts.filter((other) => other !== id) }),
    ),
    ...filters.map((filter) => chip(filterTitle(filter), { filters: toggled(filters, filter) })),
  ];
  if (chips.length === 0) return null;
  return (
    <div class="chips" role="group" aria-label="Active filters">
      {chips}
      {chips.length > 1 && (
        <Button kind="quiet small" onClick={() => go({ hosts: [], filters: [] })}>
          Clear all
        </Button>
      )}
      {kept !== undefined && kept.kept < kept.attacks && (
        <span class="hint" role="status">
          {`Counts among the ${formatCount(kept.kept)} of ${formatCount(kept.attacks)} attacks that are kept.`}
        </span>
      )}
    </div>
  );
}
