/** A section of the dashboard with a title and a menu of exports. */
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { Menu, type MenuItem } from './menu.tsx';
import { isTemporary, sentence } from './states.tsx';

interface PanelProps {
  title: ComponentChildren;
  class: string;
  /** Next to the title. */
  extras?: ComponentChildren;
  exports?: readonly MenuItem[];
  /** Why the latest load failed. It is tried again; until then, the content is grey. */
  failure?: unknown;
  children?: ComponentChildren;
}

export function Panel(props: PanelProps) {
  const { title, class: className, extras, exports = [], failure = null, children } = props;
  const id = useId();
  return (
    <section class={`panel ${className}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        <div class="extras">{extras}</div>
        {exports.length > 0 && <Menu name="Export" icon="download" items={exports} />}
      </header>
      {failure !== null && (
        <p class="panel-note problem" role="status">
          {`Not updated. ${sentence(failure)}${isTemporary(failure) ? ' Trying again.' : ''}`}
        </p>
      )}
      <div class={`panel-body ${failure === null ? '' : 'stale'}`}>{children}</div>
    </section>
  );
}
