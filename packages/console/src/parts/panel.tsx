/** A section of the dashboard with a title and a menu of exports. */
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { Menu, type MenuItem } from './menu.tsx';

interface PanelProps {
  title: ComponentChildren;
  class: string;
  /** Next to the title. */
  extras?: ComponentChildren;
  exports?: readonly MenuItem[];
  children: ComponentChildren;
}

export function Panel({ title, class: className, extras, exports = [], children }: PanelProps) {
  const id = useId();
  return (
    <section class={`panel ${className}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        <div class="extras">{extras}</div>
        {exports.length > 0 && <Menu name="Export" icon="download" items={exports} />}
      </header>
      <div class="panel-body">{children}</div>
    </section>
  );
}
