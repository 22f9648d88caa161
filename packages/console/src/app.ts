/** The context and the interface of a page. */

import type { Api, Project, Session } from './api.ts';
import type { View } from './view.ts';

export interface App {
  api: Api;
  session: Session;
  /** The selected project. */
  project: Project;
  view(): View;
  /** Navigates. `push` adds a history entry, `replace` does not. */
  go(change: Partial<View>, history?: 'push' | 'replace'): void;
  /** Offset of the selected time zone. */
  offsetMs(): number;
  timezone(): string;
  /** By the clock of the service, in milliseconds since the epoch. */
  now(): number;
  /** Loads the session and its projects again. */
  reload(): Promise<void>;
  /** Shows the sign-in page if the session has ended. Returns whether it has. */
  handleSignedOut(failure: unknown): boolean;
}

export interface Page {
  element: HTMLElement;
  title: string;
  /** Called first after the page is built, then whenever the view changes. */
  show(): void;
  /** Called every few seconds in live mode. */
  refresh?(): void;
  leave?(): void;
}
