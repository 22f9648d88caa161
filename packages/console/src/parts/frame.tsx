/** The frame of every page: navigation, project and user. Always drawn, so that users can sign out of any state. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import LOGO from '../../favicon.svg?inline';
import { useApp } from '../app.ts';
import { currentTheme, onTheme, switchTheme } from '../theme.ts';
import { useAction } from '../use-query.ts';
import { changed, PAGE_TITLES, PAGES, urlOf, type View } from '../view.ts';
import { Button } from './button.tsx';
import { Icon } from './icon.tsx';
import { Shortcuts } from './shortcuts.tsx';
import { Problem } from './states.tsx';

export function Frame({ children }: { children: ComponentChildren }) {
  const { view } = useApp();
  const [isOpen, setOpen] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  useEffect(() => setOpen(false), [view.page]);
  const onKeyDown = ({ key }: KeyboardEvent) => {
    if (key !== 'Escape' || !isOpen) return;
    setOpen(false);
    opener.current?.focus();
  };
  if (view.tv && view.page === 'dashboard')
    return (
      <main id="main">
        {children}
        <Shortcuts />
      </main>
    );
  return (
    <>
      <header class="top" onKeyDown={onKeyDown}>
        <a class="skip" href="#main">
          Skip to content
        </a>
        <div class="brand">
          <Logo />
          <span>wafstat</span>
        </div>
        <ProjectPicker />
        <button
          ref={opener}
          class="button quiet menu-button"
          type="button"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name={isOpen ? 'close' : 'menu'} />
          Menu
        </button>
        <div class={`menu ${isOpen ? 'open' : ''}`}>
          <Navigation />
          <Account key={view.page} />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {view.problems.length > 0 && (
          <p class="notice" role="alert">
            {`This link is not valid: ${view.problems.join(', ')}. The page shows the default instead.`}
          </p>
        )}
        {children}
      </main>
      <Shortcuts />
    </>
  );
}

function Navigation() {
  const { session, view } = useApp();
  const pages = (Object.keys(PAGES) as (keyof typeof PAGES)[]).filter(
    (name) => (name !== 'admin' && name !== 'audit') || session.administers_domain,
  );
  return (
    <nav aria-label="Pages">
      {pages.map((name) => (
        <PageLink key={name} to={{ page: name }} current={name === view.page}>
          {PAGE_TITLES[name]}
        </PageLink>
      ))}
    </nav>
  );
}

/** Has the page as its key, so that the next page does not show the error of this one. */
function Account() {
  const { session, signOut } = useApp();
  const { run, problem, isRunning } = useAction();
  return (
    <>
      <div class="who">
        <ThemeButton />
        <span class="user" title={`Domain ${session.user.domain}`}>
          {session.user.name}
        </span>
        <Button kind="quiet" disabled={isRunning} onClick={() => void run(signOut)}>
          Sign out
        </Button>
      </div>
      <Problem text={problem && `You are still signed in. ${problem}`} />
    </>
  );
}

interface PageLinkProps {
  /** The change of the view. */
  to: Partial<View>;
  current?: boolean;
  class?: string;
  title?: string;
  children: ComponentChildren;
}

/** A link within the console. With a modifier key, the browser opens it in a new tab or window. */
export function PageLink({ to, current = false, class: className, title, children }: PageLinkProps) {
  const { view, go } = useApp();
  const onClick = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a
      class={className}
      title={title}
      href={urlOf(changed(view, to))}
      aria-current={current ? 'page' : undefined}
      onClick={onClick}
    >
      {children}
    </a>
  );
}

function ProjectPicker() {
  const { session, project, go } = useApp();
  if (session.projects.length === 0) return null;
  const choose = (id: string) => go({ project: id, hosts: [] });
  return (
    <div class="project">
      <select
        aria-label="Project"
        title={project?.name}
        value={project?.id ?? ''}
        onChange={(event) => choose(event.currentTarget.value)}
      >
        {project === null && <option value="">Choose a project</option>}
        {session.projects.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

function ThemeButton() {
  const [theme, setTheme] = useState(currentTheme());
  useEffect(() => onTheme(() => setTheme(currentTheme())), []);
  const other = theme === 'dark' ? 'light' : 'dark';
  const name = `Switch to ${other} theme`;
  return <Button kind="quiet square" aria-label={name} title={name} onClick={switchTheme} icon={other} />;
}

/** The title of a page or section, with a hint or a button beside it. */
export function PageHead({
  level,
  title,
  children,
}: {
  level: 1 | 2;
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="page-head">
      {level === 1 ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function Logo() {
  return <img class="logo" src={LOGO} alt="" width={24} height={24} />;
}
