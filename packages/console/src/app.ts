/** What every page works with, and what a page is. */

import type { View } from './address.ts';
import type { Api, Project, Session } from './api.ts';

export interface App {
  api: Api;
  session: Session;
  /** The project that is looked at. */
  project: Project;
  view(): View;
  /** Shows another view; the old one is a step back, unless it is only a refinement of it. */
  go(change: Partial<View>, how?: 'step' | 'refine'): void;
  /** Milliseconds east of UTC, as chosen. */
  offsetMs(): number;
  timezone(): string;
  /** By the clock of the service. */
  now(): number;
  /** Starts anew with who is signed in now, and what they may see. */
  restart(): Promise<void>;
  /** Whether a failure was that of an ended session, which leads to the sign-in. */
  ended(failure: unknown): boolean;
}

export interface Page {
  element: HTMLElement;
  title: string;
  /** The view has changed, but not the page. */
  show(): void;
  /** Some seconds have gone by. */
  tick?(): void;
  leave?(): void;
}
