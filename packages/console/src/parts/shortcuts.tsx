/** Keyboard shortcuts, and the list of them. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { type App, useApp } from '../app.ts';
import { showAttacks } from '../dashboard/attacks-panel.tsx';
import { endsNow, shiftedRange } from '../time-range.ts';
import { PAGE_TITLES, type PageName } from '../view.ts';
import { Button } from './button.tsx';
import { Dialog } from './dialog.tsx';

/** The second key after `g`. */
const PAGE_KEYS: Readonly<Record<string, PageName>> = {
  d: 'dashboard',
  o: 'overview',
  h: 'hosts',
  s: 'sources',
};

const LIST = [
  ...Object.entries(PAGE_KEYS).map(([key, page]) => [`g, then ${key}`, PAGE_TITLES[page]]),
  ['/', 'Search'],
  ['a', 'The list of attacks'],
  ['[ and ]', 'Previous and next period'],
  ['l', 'Pause or resume live mode'],
  ['f', 'Dashboard in full screen; Escape leaves'],
  ['← and →', 'In the chart: read the points'],
  ['Shift and ← or →', 'In the chart: select points'],
  ['Enter', 'In the chart: zoom in; the back button of the browser zooms out'],
  ['?', 'This list'],
];

export function Shortcuts() {
  const app = useApp();
  const current = useRef(app);
  current.current = app;
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    let before = '';
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const isHandled = event.key === '?' ? openList() : handle(before, event.key, current.current);
      before = event.key;
      if (isHandled) event.preventDefault();
    };
    const openList = () => {
      setOpen(true);
      return true;
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, []);
  return isOpen ? (
    <Dialog title="Keyboard shortcuts" close={() => setOpen(false)}>
      <dl class="shortcuts">
        {LIST.map(([keys, text]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <div class="form-end">
        <Button onClick={() => setOpen(false)}>Close</Button>
      </div>
    </Dialog>
  ) : null;
}

function isTyping(target: EventTarget | null): boolean {
  if (document.querySelector('dialog[open]') !== null) return true;
  return target instanceof HTMLElement && target.matches('input, select, textarea');
}

/** Returns whether the key is a shortcut. */
function handle(before: string, key: string, { view, zone, now, go }: App): boolean {
  const page = before === 'g' ? PAGE_KEYS[key] : undefined;
  if (page !== undefined) go({ page });
  else if (key === '[' || key === ']') {
    const shifted = shiftedRange(view.selectedRange, zone, key === '[' ? -1 : 1, now());
    if (shifted !== null) go({ selectedRange: shifted });
  } else if (key === 'l' && endsNow(view.selectedRange)) go({ live: !view.live }, 'replace');
  else if (key === 'f') {
    document.documentElement.requestFullscreen?.().catch(() => {});
    go({ page: 'dashboard', tv: true });
  } else if (key === 'a' && view.page === 'dashboard') showAttacks();
  else if (key === '/') document.querySelector<HTMLElement>('main input[type=search]')?.focus();
  else return false;
  return true;
}
