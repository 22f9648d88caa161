/** The active filters. A click on one removes it. */
import { useApp } from '../app.ts';
import { CATEGORY_NAMES } from '../categories.ts';
import { Button } from '../parts/button.tsx';
import { Icon } from '../parts/icon.tsx';
import type { View } from '../view.ts';

/** `names`: of hosts, by ID. */
export function Filters({ names }: { names: ReadonlyMap<string, string> }) {
  const { view, go } = useApp();
  const { hosts, categories, excluded } = view;
  const without = <T,>(list: readonly T[], one: T) => list.filter((other) => other !== one);
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
    ...hosts.map((id) => chip(`Host: ${names.get(id) ?? id}`, { hosts: without(hosts, id) })),
    ...categories.map((name) =>
      chip(`Category: ${CATEGORY_NAMES[name]}`, { categories: without(categories, name) }),
    ),
    ...excluded.map((name) => chip(`Not: ${CATEGORY_NAMES[name]}`, { excluded: without(excluded, name) })),
  ];
  if (chips.length === 0) return null;
  return (
    <div class="chips" role="group" aria-label="Active filters">
      {chips}
      {chips.length > 1 && (
        <Button kind="quiet small" onClick={() => go({ hosts: [], categories: [], excluded: [] })}>
          Clear all
        </Button>
      )}
    </div>
  );
}
