/** Session and navigation: which page is shown to whom. */
import { WafstatError } from '@wafstat/client';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Api, IngestKey, Project, Session } from './api.ts';
import { type App, AppContext, type HistoryMode, mayRead, useApp } from './app.ts';
import { AdministrationPage } from './pages/administration.tsx';
import { AlertsPage } from './pages/alerts.tsx';
import { AuditPage } from './pages/audit.tsx';
import { CredentialsPage } from './pages/credentials.tsx';
import { DashboardPage } from './pages/dashboard.tsx';
import { HostsPage } from './pages/hosts.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { SignInPage } from './pages/sign-in.tsx';
import { SourcesPage } from './pages/sources.tsx';
import { TuningPage } from './pages/tuning.tsx';
import { Frame, PageLink } from './parts/frame.tsx';
import { Failure, isTemporary, MessagePage } from './parts/states.tsx';
import { REFRESH_MS } from './use-query.ts';
import { changed, PAGE_TITLES, type PageName, parseView, urlOf, type View } from './view.ts';
import { browserZone, parseZone } from './zone.ts';

const PAGE_OF = {
  dashboard: DashboardPage,
  overview: OverviewPage,
  hosts: HostsPage,
  sources: SourcesPage,
  tuning: TuningPage,
  alerts: AlertsPage,
  credentials: CredentialsPage,
  admin: AdministrationPage,
  audit: AuditPage,
  missing: MissingPage,
};

/** Pages without statistics. */
const WITHOUT_PROJECT: readonly PageName[] = ['credentials', 'admin', 'audit', 'missing'];

type SessionState =
  | { kind: 'loading' }
  | { kind: 'failed'; failure: unknown }
  /** `notice`: why the user has to sign in again. */
  | { kind: 'signed out'; notice: string }
  | { kind: 'signed in'; session: Session };

export function Root({ api }: { api: Api }) {
  const [state, setState] = useState<SessionState>({ kind: 'loading' });
  const { view, go } = useView();
  async function load(): Promise<void> {
    try {
      const session = await api.session();
      setState(session === null ? { kind: 'signed out', notice: '' } : { kind: 'signed in', session });
    } catch (failure) {
      if (isSignedOut(failure)) setState({ kind: 'signed out', notice: endOfSession(failure) ?? '' });
      else setState({ kind: 'failed', failure });
    }
  }
  useEffect(() => void load(), []);
  useEffect(() => {
    if (state.kind !== 'failed' || !isTemporary(state.failure)) return;
    const timer = setTimeout(() => void load(), REFRESH_MS);
    return () => clearTimeout(timer);
  }, [state]);
  if (state.kind === 'loading') return null;
  if (state.kind === 'failed')
    return (
      <main class="alone">
        <Failure failure={state.failure} retry={() => void load()} />
      </main>
    );
  if (state.kind === 'signed out') {
    // The URL stays, so that the user gets to the requested page after signing in.
    const signedIn = (session: Session) => setState({ kind: 'signed in', session });
    return <SignInPage api={api} notice={state.notice} signedIn={signedIn} />;
  }
  const signedOut = (notice: string) => setState({ kind: 'signed out', notice });
  const { session } = state;
  return <SignedIn api={api} session={session} view={view} go={go} reload={load} signedOut={signedOut} />;
}

interface SignedInProps {
  api: Api;
  session: Session;
  view: View;
  go: App['go'];
  reload(): Promise<void>;
  signedOut(notice: string): void;
}

function SignedIn({ api, session, view, go, reload, signedOut }: SignedInProps) {
  const project = projectOf(session, view);
  const skewMs = useMemo(() => session.now - Date.now(), [session]);
  const [ingestKeys] = useState(() => new Map<string, IngestKey>());
  const zone = useMemo(() => parseZone(view.timezone) ?? browserZone(), [view.timezone]);
  const app: App = {
    api,
    session,
    project,
    view,
    zone,
    ingestKeys,
    go,
    reload,
    now: () => Date.now() + skewMs,
    async signOut() {
      await api.signOut();
      signedOut('');
    },
    handleSignedOut(failure) {
      const isEnded = isSignedOut(failure);
      if (isEnded) signedOut(endOfSession(failure) ?? 'Your session has ended. Sign in again to continue.');
      return isEnded;
    },
  };
  // An administrator without a project can create one, or enable it again.
  const hasProjects = session.projects.length > 0;
  const page = !hasProjects && session.administers_domain && view.page === 'dashboard' ? 'admin' : view.page;
  useLayoutEffect(() => {
    document.title = [PAGE_TITLES[page], project?.name, 'wafstat'].filter(Boolean).join(' · ');
  }, [page, project?.name]);
  return (
    <AppContext.Provider value={app}>
      <Frame>
        <Page page={page} key={`${page} ${project?.id}`} />
      </Frame>
    </AppContext.Provider>
  );
}

function Page({ page }: { page: PageName }) {
  const { session, project } = useApp();
  const Content = PAGE_OF[page];
  if ((page === 'admin' || page === 'audit') && !session.administers_domain)
    return (
      <MessagePage title="Not allowed">Only administrators of the domain can see this page.</MessagePage>
    );
  if (WITHOUT_PROJECT.includes(page)) return <Content />;
  if (session.projects.length === 0) return <NoProject />;
  // The overview shows all projects.
  if (page === 'overview') return <Content />;
  if (project === null) return <OtherProject />;
  return mayRead(project) ? <Content /> : <IngestOnly name={project.name} />;
}

/** The numbers of another project would look like those of the link. */
function OtherProject() {
  const { session, view } = useApp();
  const links = session.projects.flatMap(({ id, name }, i) => [
    i === 0 ? ' ' : ', ',
    <PageLink key={id} to={{ project: id, hosts: [] }}>
      {name}
    </PageLink>,
  ]);
  return (
    <MessagePage title="You cannot view the project of this link">
      The project <code>{view.project}</code> does not exist, or you have no role in it. Ask for a role, or
      open
      {links}.
    </MessagePage>
  );
}

/** A user who may send log lines, but not read statistics. */
function IngestOnly({ name }: { name: string }) {
  return (
    <MessagePage title={`You cannot view the statistics of ${name}`}>
      Your role in this project is ingest: it allows sending log lines. To view statistics, ask your
      administrator for the role reader.
    </MessagePage>
  );
}

function NoProject() {
  return (
    <MessagePage title="No project">
      {useApp().session.administers_domain ? (
        <>
          You have no role in any enabled project.{' '}
          <PageLink to={{ page: 'admin' }}>Create or enable a project</PageLink>.
        </>
      ) : (
        'You have no role in any project. Ask your administrator for one.'
      )}
    </MessagePage>
  );
}

function MissingPage() {
  return (
    <MessagePage title="There is no such page">
      The console has no page <code>{location.pathname}</code>.{' '}
      <PageLink to={{ page: 'dashboard' }}>Open the dashboard</PageLink>
    </MessagePage>
  );
}

/** The project of the link, or the first if it names none. */
function projectOf({ projects }: Session, { project }: View): Project | null {
  return projects.find(({ id }) => project === null || id === project) ?? null;
}

/** Why the service has ended the session. Null: the browser has none, or no longer. */
function endOfSession(failure: unknown): string | null {
  const reason = failure instanceof WafstatError ? failure.message : '';
  // Without a cookie, calls of the API say that they need a token.
  return reason.includes('session') ? `Your session has ended: ${reason}.` : null;
}

function isSignedOut(failure: unknown): boolean {
  return failure instanceof WafstatError && failure.status === 401;
}

/** The view of the URL. */
function useView(): { view: View; go: App['go'] } {
  const [view, setView] = useState(() => parseView(new URL(location.href)));
  const current = useRef(view);
  const show = (next: View) => {
    const isOtherPage = next.page !== current.current.page;
    current.current = next;
    setView(next);
    if (isOtherPage) scrollTo(0, 0);
  };
  useEffect(() => {
    // The path of a missing page stays, so that the user can correct it.
    if (current.current.page !== 'missing') history.replaceState(history.state, '', urlOf(current.current));
    const popped = () => show(parseView(new URL(location.href)));
    addEventListener('popstate', popped);
    return () => removeEventListener('popstate', popped);
  }, []);
  const go = (change: Partial<View>, mode: HistoryMode = 'push') => {
    const next = changed(current.current, change);
    // The state tells the back button of a custom range that the previous entry is ours.
    if (mode === 'push') history.pushState({ within: true }, '', urlOf(next));
    else history.replaceState(history.state, '', urlOf(next));
    show(next);
  };
  return { view, go };
}
