/** Attacks by category: a bar chart that is a table, so it is accessible as it is. */
import { ATTACK_TYPES, type AttackType, type AttackTypes } from '@wafstat/client';
import type { App } from '../app.ts';
import { byAttacks, CATEGORY_NAMES } from '../categories.ts';
import { button, h, refill } from '../dom.ts';
import { attackTypesCurl, csv, download } from '../export.ts';
import { formatCount, share } from '../format.ts';
import { total } from '../points.ts';
import type { TimeRange } from '../time-range.ts';
import { categoryFilter } from '../view.ts';
import { command } from './copy.ts';
import { panel } from './panel.ts';
import { tableHead } from './table.ts';

export interface DistributionPanel {
  element: HTMLElement;
  show(counts: AttackTypes, range: TimeRange): void;
}

export function distributionPanel(app: App): DistributionPanel {
  const { element, body, addAction, addDrawer } = panel('Attacks by category', 'distribution');
  const curl = command('API call');
  const rows = h('tbody', {}, ...ATTACK_TYPES.map(skeleton));
  let shown: AttackTypes | null = null;
  const head = tableHead(['Category', 'Bar', 'Attacks', 'Share'], { class: 'offscreen' });
  body.append(h('table', { class: 'bars' }, head, rows));
  addAction('download', 'CSV', () => {
    if (shown) download('attacks.csv', distributionCsv(shown));
  });
  addDrawer('code', 'curl', curl.element);
  return {
    element,
    show(counts, range) {
      shown = counts;
      const numbers = ATTACK_TYPES.map((name) => counts[name]);
      const [sum, most] = [total(numbers), Math.max(1, ...numbers)];
      refill(rows, ...byAttacks(counts).map((name) => row(name, counts[name], sum, most)));
      const { hosts } = app.view();
      curl.set(attackTypesCurl({ ...range, origin: location.origin, project: app.project.id, hosts }));
    },
  };

  function row(name: AttackType, count: number, sum: number, most: number): HTMLElement {
    const { byCategory, category } = app.view();
    const isChosen = name === category;
    const bar = h('span', { class: 'bar' });
    bar.style.width = `${(count / most) * 100}%`;
    if (byCategory) bar.style.setProperty('--key', `var(--category-${name})`);
    const label = [h('span', {}, CATEGORY_NAMES[name]), h('code', {}, name)];
    const props = { class: 'filter', 'aria-pressed': String(isChosen), 'data-focus': name };
    const filter = () => app.go(categoryFilter(app.view(), name));
    // Without attacks there is nothing to show, but the filter can be removed.
    const heading = count > 0 || isChosen ? [button(props, filter, ...label)] : label;
    return h(
      'tr',
      { class: isChosen ? 'chosen' : count === 0 ? 'none' : null, 'data-key': name },
      h('th', { scope: 'row' }, ...heading),
      h('td', { class: 'track' }, bar),
      h('td', { class: 'number' }, formatCount(count)),
      h('td', { class: 'number faint' }, count === 0 ? '–' : share(count, sum)),
    );
  }
}

function skeleton(key: AttackType): HTMLElement {
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, h('span', {}, CATEGORY_NAMES[key]), h('code', {}, key)),
    h('td', { class: 'track' }, h('span', { class: 'skeleton' })),
    h('td', {}),
    h('td', {}),
  );
}

function distributionCsv(counts: AttackTypes): string {
  return csv([
    ['category', 'name', 'attacks'],
    ...ATTACK_TYPES.map((name) => [name, CATEGORY_NAMES[name], counts[name]]),
  ]);
}
