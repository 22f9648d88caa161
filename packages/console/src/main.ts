/** From the address to the page: who is signed in, which project, which view. */
import { WafstatError } from '@wafstat/client';
import { addressOf, parseAddress, type View } from './address.ts';
import { createApi, type Session } from './api.ts';
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
import { browserOffset, parseOffset } from './time-zone.ts';

const REFRESH_MS = 5_000;

const PAGE_OF = {
  dashboard: dashboardPage,
  hosts: hostsPage,
  sources: sourcesPage,
  credentials: credentialsPage,
  admin: administrationPage,
};

const api = createApi(location.origin);
let view = parseAddress(new URL(location.href));
let app: App | null = null;
let frame: Shell | null = null;
let page: Page | null = null;

applyTheme();
addEventListener('popstate', () => display(parseAddress(new URL(location.href))));
setInterval(() => {
  if (view.live && !document.hidden) page?.tick?.();
}, REFRESH_MS);
await start();

async function start(): Promise<void> {
  try {
    enter(await api.session());
  } catch (failure) {
    if (failure instanceof WafstatError && failure.status === 401) askWho();
    else
      document.body.replaceChildren(
        h(
          'main',
          { class: 'alone' },
          failureNotice(failure, () => void start()),
        ),
      );
  }
}

/** The address stays: who signs in is where they wanted to be. */
function askWho(): void {
  clear();
  document.title = 'Sign in · wafstat';
  document.body.replaceChildren(signInPage(api, enter));
}

function enter(session: Session): void {
  clear();
  const project = session.projects.find(({ id }) => id === view.project) ?? session.projects[0];
  if (project === undefined) {
    const nowhere = message(
      'No project yet',
      'This user has no role in any project. An administrator can give one.',
    );
    document.body.replaceChildren(h('main', { class: 'alone' }, nowhere));
    return;
  }
  const skew_ms = session.now - Date.now();
  const now = () => Date.now() + skew_ms;
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
    restart: start,
    ended: (failure) => {
      const ended = failure instanceof WafstatError && failure.status === 401;
      if (ended) askWho();
      return ended;
    },
  };
  frame = shell(app, () => void api.signOut().finally(askWho));
  document.body.replaceChildren(...frame.elements);
  // A project that this user cannot see leads to one that they can.
  if (view.project !== null && view.project !== project.id)
    view = { ...view, project: project.id, hosts: [] };
  history.replaceState(history.state, '', addressOf(view));
  display(view, true);
}

function go(change: Partial<View>, how: 'step' | 'refine' = 'step'): void {
  const next = { ...view, ...change };
  // The mark tells a later step back that it leads to a page of ours.
  if (how === 'step') history.pushState({ within: true }, '', addressOf(next));
  else history.replaceState(history.state, '', addressOf(next));
  display(next);
}

function display(next: View, anew = false): void {
  const before = view;
  view = next;
  if (app === null || frame === null) return;
  const wanted = app.session.projects.find(({ id }) => id === next.project) ?? app.session.projects[0];
  if (wanted && wanted.id !== app.project.id) {
    enter(app.session);
    return;
  }
  if (anew || before.page !== next.page) {
    page?.leave?.();
    page = PAGE_OF[next.page](app);
    frame.put(page.element);
    if (!anew) scrollTo(0, 0);
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
