/** What the console needs beyond the API: its files, sessions, and a few calls that manage things. All of it by name. */

import type { RequestIdentity } from '../../identity/identity.ts';
import type { Store } from '../../store/store.ts';
import { notCached, type Route } from '../route.ts';
import { administrationRoutes } from './administration-routes.ts';
import { fileRoutes } from './files.ts';
import { hostRoutes } from './host-routes.ts';
import { keyRoutes } from './key-routes.ts';
import { sessionRoutes } from './session-routes.ts';

export function consoleRoutes(identity: RequestIdentity, store: Store, now: () => number): Route[] {
  const api = [
    ...sessionRoutes(identity, now),
    ...keyRoutes(identity),
    ...hostRoutes(store, identity.audit),
    ...administrationRoutes(identity),
  ];
  return [...fileRoutes(), ...api.map(notCached)];
}
