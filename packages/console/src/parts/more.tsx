/** Long lists are shown in steps. */
import { useState } from 'preact/hooks';
import { formatCount } from '../format.ts';
import { Button } from './button.tsx';

/** How many items to show: `step`, and more with each click. Another key begins again. */
export function useLimit(step: number, key: string) {
  const [state, setState] = useState({ key, limit: step });
  const limit = state.key === key ? state.limit : step;
  return { limit, more: () => setState({ key, limit: limit + step }) };
}

/** `all`: undefined if it is not known how many there are. */
export function More({ shown, all, more }: { shown: number; all?: number; more(): void }) {
  if (all !== undefined && shown >= all) return null;
  const of = all === undefined ? '' : ` of ${formatCount(all)}`;
  return (
    <div class="pager">
      <Button onClick={more}>Show more</Button>
      <span class="hint">{`${formatCount(shown)}${of} are shown`}</span>
    </div>
  );
}
