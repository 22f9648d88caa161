/** Attacks by category: a bar chart that is a table, so it is accessible as it is. */
import { ATTACK_TYPES, type AttackType, type AttackTypes, CATEGORY_NAMES } from '@wafstat/client';
import { useApp, useProject } from '../app.ts';
import { byAttacks } from '../categories.ts';
import { total } from '../counts.ts';
import { csv, curlCommand, download, fileName, wafstatCommand } from '../export.ts';
import { countedCategories, hasFilter, keptFilters } from '../filters.ts';
import { formatCount, share } from '../format.ts';
import { FilterValue } from '../parts/filter-value.tsx';
import { copyItems } from '../parts/menu.tsx';
import { Panel } from '../parts/panel.tsx';
import { Ranking } from '../parts/ranking.tsx';
import type { TimeRange } from '../time-range.ts';

export function CategoriesPanel({ counts, range }: { counts: AttackTypes; range: TimeRange }) {
  const { view, zone } = useApp();
  const project = useProject();
  const filters = keptFilters(view.filters);
  const query = { ...range, origin: location.origin, project: project.id, hosts: view.hosts, filters };
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
        ...copyItems(curlCommand({ ...query, path: 'event/attack/type' }), wafstatCommand('types', query)),
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
  const { filters } = useApp().view;
  const count = counts[name];
  const most = Math.max(1, ...Object.values(counts));
  const has = (isExcluded: boolean) => hasFilter(filters, { field: 'category', value: name, isExcluded });
  const isCounted = countedCategories(filters).includes(name);
  const states = { chosen: has(false), off: !isCounted, excluded: has(true), none: count === 0 };
  const classes = Object.entries(states).flatMap(([state, isSet]) => (isSet ? [state] : []));
  return (
    <tr class={classes.join(' ')} data-key={name}>
      <th scope="row">
        {count > 0 || has(false) || !isCounted ? (
          <FilterValue field="category" value={name} />
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
