/** The frame of every page: navigation, project and user. */

import type { App } from '../app.ts';
import { button, fill, h, icon, type Props } from '../dom.ts';
import { currentTheme, onTheme, switchTheme } from '../theme.ts';
import { PAGES, type PageName, urlOf } from '../view.ts';

const TITLES: Readonly<Record<PageName, string>> = {
  dashboard: 'Dashboard',
  hosts: 'Hosts',
  sources: 'Sources',
  credentials: 'My credentials',
  admin: 'Users and projects',
};

export interface Shell {
  elements: HTMLElement[];
  put(page: HTMLElement): void;
  /** Called when the view changes. */
  show(): void;
}

export function shell(app: App, signOut: () => void): Shell {
  const main = h('main', { id: 'main', tabindex: -1 });
  const pages = (Object.keys(PAGES) as PageName[]).filter(
    (name) => name !== 'admin' || app.session.administers_domain,
  );
  const links = pages.map((name) => ({
    name,
    link: pageLink(TITLES[name], {}, () => app.go({ page: name })),
  }));
  const header = h(
    'header',
    { class: 'top' },
    h('a', { class: 'skip', href: '#main' }, 'Skip to content'),
    h('div', { class: 'brand' }, logo(), h('span', {}, 'wafstat')),
    projectPicker(app),
    h('nav', { 'aria-label': 'Pages' }, ...links.map(({ link }) => link)),
    h(
      'div',
      { class: 'who' },
      themeButton(),
      h('span', { class: 'user', title: `Domain ${app.session.user.domain}` }, app.session.user.name),
      button({ class: 'button quiet' }, signOut, 'Sign out'),
    ),
  );
  return {
    elements: [header, main],
    put: (page) => fill(main, page),
    show() {
      const view = app.view();
      for (const { name, link } of links) {
        link.href = urlOf({ ...view, page: name });
        if (name === view.page) {
          link.setAttribute('aria-current', 'page');
          // On a narrow screen it may be scrolled out of view.
          link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
        } else link.removeAttribute('aria-current');
      }
    },
  };
}

function projectPicker(app: App): HTMLElement {
  const { projects } = app.session;
  const options = projects.map(({ id, name }) =>
    h('option', { value: id, selected: id === app.project.id }, name),
  );
  const select = h('select', { 'aria-label': 'Project' }, ...options);
  select.addEventListener('change', () => app.go({ project: select.value, hosts: [], offset: 0 }));
  return h('div', { class: 'project' }, select);
}

function themeButton(): HTMLElement {
  const element = button({ class: 'button quiet square' }, switchTheme);
  const draw = () => {
    const other = currentTheme() === 'dark' ? 'light' : 'dark';
    fill(element, icon(other));
    element.ariaLabel = element.title = `Switch to ${other} theme`;
  };
  onTheme(draw);
  draw();
  return element;
}

/** The title of a page or section, with a hint or a button beside it. */
export function pageHead(level: 'h1' | 'h2', title: string, beside?: Node): HTMLElement {
  return h('div', { class: 'page-head' }, h(level, {}, title), beside);
}

/** A link within the console. With a modifier key, the browser opens it in a new tab or window. */
export function pageLink(text: string, props: Props, go: () => void): HTMLAnchorElement {
  const link = h('a', props, text);
  link.addEventListener('click', (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go();
  });
  return link;
}

export function logo(): HTMLElement {
  return h('img', { class: 'logo', src: '/console/favicon.svg', alt: '', width: 24, height: 24 });
}
