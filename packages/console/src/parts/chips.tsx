/** Active filters. A click on one removes it. */

import { Button } from './button.tsx';
import { Icon } from './icon.tsx';

export interface Chip {
  /** What it filters, such as `Host`. */
  kind: string;
  text: string;
  remove(): void;
}

export function Chips({ chips, clear }: { chips: readonly Chip[]; clear?: (() => void) | undefined }) {
  if (chips.length === 0) return null;
  return (
    <div class="chips" role="group" aria-label="Active filters">
      {chips.map(({ kind, text, remove }) => (
        <button
          key={`${kind} ${text}`}
          class="chip"
          type="button"
          aria-label={`${kind}: ${text}. Remove the filter`}
          onClick={remove}
        >
          <span class="cut">{`${kind}: ${text}`}</span>
          <Icon name="close" />
        </button>
      ))}
      {clear && chips.length > 1 && (
        <Button kind="quiet small" onClick={clear}>
          Clear all
        </Button>
      )}
    </div>
  );
}
