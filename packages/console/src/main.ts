/** Entry point: session, navigation and refresh. */
import { WafstatError } from '@wafstat/client';
import { createApi, type Project, type Session } from './api.ts';
import type { App, Page } from './app.ts';
import { h } from './dom.ts';
import { administrationPage } from './pages/administration.ts';
import { credentialsPage } from './pages/credentials.ts';
import { dashboardPage } from './pages/dashboard.ts';
import { hostsPage } from './pages/hosts.ts';
import { signInPage } from './pages/sign-in.ts';
import { sourcesPage } from './pages/sources.ts';
import { type Shell, shell } from './parts/shell.ts';
import { failureNotice, message } from './parts/states.ts';
import { applyTheme } from './theme.ts';
import { browserOffset, parseOffset } from './time-range.ts';
import { parseView, urlOf, type View } from './view.ts';

const REFRESH_MS = 5_000;

const PAGE_OF = {
  dashboard: dashboardPage,
  hosts: hostsPage,
  sources: sourcesPage,
  credentials: credentialsPage,
  admin: administrationPage,
};

const api = createApi(location.origin);
let view = parseView(new URL(location.href));
let app: App | null = null;
let frame: Shell | null = null;
let page: Page | null = null;

applyTheme();
addEventListener('popstate', () => display(parseView(new URL(location.href))));
setInterval(() => {
  if (view.live && !document.hidden) page?.refresh?.();
}, REFRESH_MS);
await start();

async function start(): Promise<void> {
  try {
    enter(await api.session());
  } catch (failure) {
    if (failure instanceof WafstatError && failure.status === 401) showSignIn();
    else showAlone(failureNotice(failure, () => void start()));
  }
}

/** The URL stays, so that the user gets to the requested page after signing in. */
function showSignIn(): void {
  clear();
  document.title = 'Sign in · wafstat';
  document.body.replaceChildren(signInPage(api, enter));
}

function showAlone(content: HTMLElement): void {
  document.body.replaceChildren(h('main', { class: 'alone' }, content));
}

function enter(session: Session): void {
  clear();
  const project = projectOf(session, view);
  if (project === undefined) {
    showAlone(message('No project', 'You have no role in any project. Ask your administrator for one.'));
    return;
  }
  const skewMs = session.now - Date.now();
  const now = () => Date.now() + skewMs;
  const timezone = () => view.timezone ?? browserOffset(now());
  app = {
    api,
    session,
    project,
    view: () => view,
    go,
    timezone,
    offsetMs: () => parseOffset(timezone()) ?? 0,
    now,
    reload: start,
    handleSignedOut: (failure) => {
      const isSignedOut = failure instanceof WafstatError && failure.status === 401;
      if (isSignedOut) showSignIn();
      return isSignedOut;
    },
  };
  frame = shell(app, () => void api.signOut().finally(showSignIn));
  document.body.replaceChildren(...frame.elements);
  // The URL may name a project that this user cannot access.
  if (view.project !== null && view.project !== project.id)
    view = { ...view, project: project.id, hosts: [] };
  history.replaceState(history.state, '', urlOf(view));
  display(view, true);
}

/** The selected project, or the first. */
function projectOf({ projects }: Session, { project }: View): Project | undefined {
  return projects.find(({ id }) => id === project) ?? projects[0];
}

function go(change: Partial<View>, mode: 'push' | 'replace' = 'push'): void {
  const next = { ...view, ...change };
  // The state tells the back button of a custom range that the previous entry is ours.
  if (mode === 'push') history.pushState({ within: true }, '', urlOf(next));
  else history.replaceState(history.state, '', urlOf(next));
  display(next);
}

function display(next: View, isNewSession = false): void {
  const before = view;
  view = next;
  if (app === null || frame === null) return;
  if (projectOf(app.session, next)?.id !== app.project.id) {
    enter(app.session);
    return;
  }
  if (isNewSession || before.page !== next.page) {
    page?.leave?.();
    page = PAGE_OF[next.page](app);
    frame.put(page.element);
    if (!isNewSession) scrollTo(0, 0);
  }
  document.title = `${page?.title ?? ''} · ${app.project.name} · wafstat`;
  frame.show();
  page?.show();
}

function clear(): void {
  page?.leave?.();
  page = null;
  frame = null;
  app = null;
}
