/** Full screen on a wall: larger, without controls, always refreshing. */
import { useEffect } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { formatRange, timeOfDay } from '../format.ts';
import { PRESETS } from '../time-range.ts';
import type { Query } from '../use-query.ts';
import { Button } from './button.tsx';
import { Logo } from './frame.tsx';

export function TvButton() {
  const { go } = useApp();
  const open = () => {
    // Browsers without it show the page in the window.
    document.documentElement.requestFullscreen?.().catch(() => {});
    go({ tv: true, live: true });
  };
  return <Button kind="square" title="Full screen" aria-label="Full screen" onClick={open} icon="screen" />;
}

/** The project, the range and the state. Escape leaves. */
export function TvHead({ query }: { query: Query<unknown> }) {
  const { view, zone, now, go } = useApp();
  const project = useProject();
  const { selectedRange } = view;
  useEffect(() => {
    document.documentElement.dataset.tv = '';
    const leave = () => go({ tv: false }, 'replace');
    const left = () => {
      if (document.fullscreenElement === null) leave();
    };
    const pressed = ({ key }: KeyboardEvent) => {
      // A dialog or a popover closes first.
      if (key === 'Escape' && document.querySelector('dialog[open], :popover-open') === null) leave();
    };
    document.addEventListener('fullscreenchange', left);
    document.addEventListener('keydown', pressed);
    return () => {
      delete document.documentElement.dataset.tv;
      document.removeEventListener('fullscreenchange', left);
      document.removeEventListener('keydown', pressed);
      if (document.fullscreenElement !== null) void document.exitFullscreen();
    };
  }, []);
  const range =
    'preset' in selectedRange
      ? PRESETS[selectedRange.preset].title
      : formatRange(selectedRange.from, selectedRange.to, zone, now());
  return (
    <div class="tv-head">
      <Logo />
      <strong>{project.name}</strong>
      <span>{range}</span>
      <TvState query={query} />
      <Button kind="quiet" onClick={() => go({ tv: false }, 'replace')} icon="close">
        Exit full screen
      </Button>
    </div>
  );
}

function TvState({ query: { failure, updatedAt } }: { query: Query<unknown> }) {
  const { zone } = useApp();
  const updated = updatedAt === null ? null : timeOfDay(updatedAt, zone);
  const state = updated === null ? 'loading' : `updated ${updated}`;
  const problem = updated === null ? 'not loaded' : `not updated since ${updated}`;
  return (
    <span class={`live ${failure === null ? '' : 'failing'}`} role="status">
      <span class="pulse" />
      {failure === null ? state : `${problem}; retrying`}
    </span>
  );
}
