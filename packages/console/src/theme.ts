/** Light or dark: the preference of the system, unless the user has switched. */
export type Theme = 'light' | 'dark';

const KEY = 'wafstat-theme';

export function currentTheme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'light' || chosen === 'dark') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

export function applyTheme(): void {
  const chosen = stored();
  if (chosen === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function switchTheme(): void {
  const next = currentTheme() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  document.documentElement.dataset.theme = next;
  document.dispatchEvent(new Event('wafstat-theme'));
}

/** Calls back when the colours change. Returns a function that stops it. */
export function onTheme(changed: () => void): () => void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', changed);
  document.addEventListener('wafstat-theme', changed);
  return () => {
    system.removeEventListener('change', changed);
    document.removeEventListener('wafstat-theme', changed);
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

function stored(): Theme | null {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === 'light' || theme === 'dark' ? theme : null;
  } catch {
    return null;
  }
}
