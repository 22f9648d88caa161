/** Resolves the host names of a batch: looks them up and registers new ones, until the project is full. */
import { Slices, STEP_BY_STEP } from './slices.ts';
import type { HostnamesToResolve } from './store.ts';

/** Names that are looked up in one turn of the event loop: a few milliseconds. */
export const NAMES_PER_STEP = 5_000;

/** The registered names of a project. */
export interface Hostnames {
  /** The number of hosts. */
  hosts: number;
  find: (hostname: string) => string | undefined;
}

export interface NewHosts {
  /** The IDs by name. */
  ids: Map<string, string>;
  /** How many more hosts the project may have. */
  room: number;
}

/** `add` registers at most `newNamesPerCall` names at a time. Names for which it returns no ID stay unresolved. */
export async function resolveHosts(
  { hostnames, limit }: HostnamesToResolve,
  newNamesPerCall: number,
  read: () => Promise<Hostnames>,
  add: (hostnames: ReadonlySet<string>) => Promise<NewHosts>,
): Promise<(string | null)[]> {
  const ids = new Array<string | null>(hostnames.length).fill(null);
  if (hostnames.length === 0) return ids;
  const registered = new Map<string, string | null>();
  const slices = new Slices(STEP_BY_STEP);
  let room: number | null = null;
  for (;;) {
    const { hosts, find } = await read();
    room ??= limit - hosts;
    const newNames = await slices.run(lookUp(find, Math.min(room, newNamesPerCall)));
    if (newNames.size === 0) return ids;
    const added = await add(newNames);
    for (const hostname of newNames) registered.set(hostname, added.ids.get(hostname) ?? null);
    room = added.room;
    // Saves a read in nearly all cases.
    if (ids.every((id, i) => id !== null || registered.has(hostnames[i] ?? ''))) {
      return hostnames.map((hostname, i) => ids[i] ?? registered.get(hostname) ?? null);
    }
  }

  /** Fills in known IDs. Returns the first of the new names. */
  function* lookUp(find: Hostnames['find'], newNamesMax: number): Generator<void, Set<string>> {
    const newNames = new Set<string>();
    for (const [i, hostname] of hostnames.entries()) {
      if (i % NAMES_PER_STEP === NAMES_PER_STEP - 1) yield;
      const id = ids[i] ?? registered.get(hostname) ?? find(hostname) ?? null;
      ids[i] = id;
      if (id === null && !registered.has(hostname) && newNames.size < newNamesMax) newNames.add(hostname);
    }
    return newNames;
  }
}
