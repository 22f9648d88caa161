/** A value that filters by a click, with its exclusion and its details beside it. */
import type { ComponentChildren } from 'preact';
import { useApp } from '../app.ts';
import { type FilterField, hasFilter, toggled, valueName } from '../filters.ts';
import type { Opened } from '../view.ts';
import { Icon, type IconName } from './icon.tsx';

interface FilterValueProps {
  field: FilterField;
  value: string;
  /** The side panel that shows more about it. */
  opens?: Opened['kind'];
  /** By default, the name of the value. */
  children?: ComponentChildren;
}

export function FilterValue({ field, value, opens, children }: FilterValueProps) {
  const { view, go } = useApp();
  const name = valueName(field, value);
  const isOn = (isExcluded: boolean) => hasFilter(view.filters, { field, value, isExcluded });
  const toggle = (isExcluded: boolean) =>
    go({ filters: toggled(view.filters, { field, value, isExcluded }), open: null });
  return (
    <>
      <button
        class="filter cut"
        type="button"
        title={`${isOn(false) ? 'Remove the filter' : 'Only'} ${name}; Alt-click to exclude it`}
        aria-pressed={isOn(false)}
        onClick={(event) => toggle(event.altKey)}
      >
        {children ?? name}
      </button>
      <RowActions>
        <RowAction icon="exclude" label={`Exclude ${name}`} pressed={isOn(true)} act={() => toggle(true)} />
        {opens && (
          <RowAction
            icon="right"
            label={`Details of ${name}`}
            act={() => go({ open: { kind: opens, value } })}
          />
        )}
      </RowActions>
    </>
  );
}

/** Beside a value: shown while the pointer or the focus is in the row, and always on a touch screen. */
export function RowActions({ children }: { children: ComponentChildren }) {
  return <span class="row-actions">{children}</span>;
}

interface RowActionProps {
  icon: IconName;
  label: string;
  pressed?: boolean;
  act(): void;
}

export function RowAction({ icon, label, pressed, act }: RowActionProps) {
  return (
    <button
      class="row-action"
      type="button"
      title={label}
      aria-label={label}
      aria-pressed={pressed}
      onClick={act}
    >
      <Icon name={icon} />
    </button>
  );
}
