/** Light or dark: the preference of the system, unless the user has switched. */
const KEY = 'wafstat-theme';

export function currentTheme(): 'light' | 'dark' {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return systemDark().matches ? 'dark' : 'light';
}

/** Restores the choice of the user. */
export function applyTheme(): void {
  try {
    const stored = localStorage.getItem(KEY);
    if (stored !== null) document.documentElement.dataset.theme = stored;
  } catch {
    // Without storage the theme is that of the system.
  }
}

export function switchTheme(): void {
  const next = currentTheme() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  document.documentElement.dataset.theme = next;
  document.dispatchEvent(new Event(KEY));
}

/** Calls back when the colours change. Returns a function that stops it. */
export function onTheme(changed: () => void): () => void {
  const system = systemDark();
  system.addEventListener('change', changed);
  document.addEventListener(KEY, changed);
  return () => {
    system.removeEventListener('change', changed);
    document.removeEventListener(KEY, changed);
  };
}

/** A colour variable of the style sheet, resolved for a canvas. */
export function colour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** The font size that style sheets call `1rem`. */
export function remPx(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
}

function systemDark(): MediaQueryList {
  return matchMedia('(prefers-color-scheme: dark)');
}
