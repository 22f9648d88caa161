/** What every component can use: the session, the view and navigation. */
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Api, IngestKey, Project, Session } from './api.ts';
import type { View } from './view.ts';
import type { Zone } from './zone.ts';

export type HistoryMode = 'push' | 'replace';

export interface App {
  api: Api;
  session: Session;
  /** The selected project. Null: the user has no role in any, or not in that of the link. */
  project: Project | null;
  view: View;
  /** The selected time zone. */
  zone: Zone;
  /** Navigates. `push` adds a history entry, `replace` does not. */
  go(change: Partial<View>, mode?: HistoryMode): void;
  /** Keys created since the page was loaded, by project ID. The first-run page shows them again. */
  ingestKeys: Map<string, IngestKey>;
  /** By the clock of the service, in milliseconds since the epoch. */
  now(): number;
  /** Loads the session and its projects again. */
  reload(): Promise<void>;
  /** Fails if the service does not confirm it: the session is then still valid. */
  signOut(): Promise<void>;
  /** Shows the sign-in page if the session has ended. Returns whether it has. */
  handleSignedOut(failure: unknown): boolean;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error('The component is outside of the application.');
  return app;
}

/** Whether the user can view statistics of the project, hosts and sources. */
export function mayRead({ roles }: Project): boolean {
  return roles.some((role) => role === 'reader' || role === 'admin');
}

/** The selected project, on pages that need one. */
export function useProject(): Project {
  const { project } = useApp();
  if (project === null) throw new Error('The page needs a project.');
  return project;
}
