/** Attacks by category: a bar chart that is a table, so it is accessible as it is. */
import { ATTACK_TYPES, type AttackType, type AttackTypes } from '@wafstat/client';
import { useApp, useProject } from '../app.ts';
import { byAttacks, CATEGORY_NAMES } from '../categories.ts';
import { total } from '../counts.ts';
import { csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { formatCount, share } from '../format.ts';
import { ALL_CATEGORIES, copyItems } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking } from '../parts/ranking.tsx';
import type { TimeRange } from '../time-range.ts';
import { countedCategories, filtersCategories, toggleCategory } from '../view.ts';

export function CategoriesPanel({ counts, range }: { counts: AttackTypes; range: TimeRange }) {
  const { view, zone } = useApp();
  const project = useProject();
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts };
  const save = () => {
    const rows = ATTACK_TYPES.map((name) => [name, CATEGORY_NAMES[name], counts[name]]);
    const content = csv([['category', 'name', 'attacks'], ...rows]);
    download(fileName(project.name, 'categories', range, zone, 'csv'), content);
  };
  return (
    <Panel
      title="Attacks by category"
      class="distribution"
      exports={[
        { label: 'Download CSV', run: save },
        ...copyItems(
          curlCommand({ ...query, path: 'event/attack/type' }),
          wafstatCommand('types', query),
          filtersCategories(view) ? ALL_CATEGORIES : undefined,
        ),
      ]}
    >
      <Ranking class="bars" columns={['Category', 'Bar', 'Attacks', 'Share']}>
        {byAttacks(counts).map((name) => (
          <CategoryRow key={name} name={name} counts={counts} />
        ))}
      </Ranking>
    </Panel>
  );
}

function CategoryRow({ name, counts }: { name: AttackType; counts: AttackTypes }) {
  const { view, go } = useApp();
  const count = counts[name];
  const most = Math.max(1, ...Object.values(counts));
  const isChosen = view.categories.includes(name);
  const isCounted = countedCategories(view).includes(name);
  const filter = (event: MouseEvent) =>
    go(toggleCategory(view, name, event.altKey ? 'excluded' : 'categories'));
  return (
    <tr
      class={`${isChosen ? 'chosen' : ''} ${isCounted ? '' : 'off'} ${view.excluded.includes(name) ? 'excluded' : ''} ${count === 0 ? 'none' : ''}`}
      data-key={name}
    >
      <th scope="row">
        {count > 0 || isChosen || !isCounted ? (
          <button
            class="filter"
            type="button"
            title="Click to filter by this category; Alt-click to exclude it"
            aria-pressed={isChosen}
            onClick={filter}
          >
            {CATEGORY_NAMES[name]}
          </button>
        ) : (
          CATEGORY_NAMES[name]
        )}
      </th>
      <td class="track">
        <span class="bar" style={{ width: `${(count / most) * 100}%`, '--key': `var(--category-${name})` }} />
      </td>
      <td class="number">{formatCount(count)}</td>
      <td class="number faint" title="Share of all attacks">
        {count === 0 ? '–' : share(count, total(Object.values(counts)))}
      </td>
    </tr>
  );
}
