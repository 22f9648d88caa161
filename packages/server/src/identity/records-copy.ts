/** All records of an identity store in memory, with their indexes. */
import type { IdentityRecord, NamedKind, NamedRecords, Records } from './identity-store.ts';
import type { AccessKey, Project } from './records.ts';

type Tables = { readonly [K in keyof Records]: Map<string, Records[K]> };

/** An added or changed record, or a deleted one, whose value is null. */
export interface RecordChange {
  kind: keyof Records;
  id: string;
  value: Records[keyof Records] | null;
}

export class RecordsCopy {
  readonly #tables: Tables = {
    domain: new Map(),
    project: new Map(),
    user: new Map(),
    key: new Map(),
    revoked: new Map(),
    login: new Map(),
  };
  readonly #names = new Map<string, string>();
  readonly #projectsByDomain = new Map<string, Set<string>>();
  readonly #accessByUser = new Map<string, Set<string>>();
  readonly #loginsByUser = new Map<string, Set<string>>();

  get<K extends keyof Records>(kind: K, id: string): Records[K] | undefined {
    return this.#tables[kind].get(id);
  }

  byName<K extends NamedKind>(kind: K, domain: string, name: string): NamedRecords[K] | undefined {
    return this.#tables[kind].get(this.#names.get(nameKey(kind, domain, name)) ?? '');
  }

  /** Sorted by ID. */
  list<K extends NamedKind>(kind: K): NamedRecords[K][] {
    return [...this.#tables[kind].values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  namesIn(kind: NamedKind, domainId: string): string[] {
    const names: string[] = [];
    for (const record of this.#tables[kind].values())
      if (domainOf(record) === domainId) names.push(record.name);
    return names;
  }

  projectsIn(domainId: string): Project[] {
    return [...(this.#projectsByDomain.get(domainId) ?? [])].flatMap((id) => this.get('project', id) ?? []);
  }

  keysOf(userId: string): AccessKey[] {
    return [...(this.#accessByUser.get(userId) ?? [])]
      .sort()
      .flatMap((access) => this.get('key', access) ?? []);
  }

  /** The IDs of the user's known logins. */
  loginsOf(userId: string): string[] {
    return [...(this.#loginsByUser.get(userId) ?? [])];
  }

  /** All but the newest `kept` ones, up to `max`. */
  oldestRevoked(kept: number, max: number): [id: string, expires: number][] {
    const count = Math.min(this.#tables.revoked.size - kept, max);
    const oldest: [string, number][] = [];
    for (const entry of this.#tables.revoked) {
      if (oldest.length >= count) break;
      oldest.push(entry);
    }
    return oldest;
  }

  *records(): Generator<IdentityRecord> {
    for (const [kind, table] of Object.entries(this.#tables)) {
      for (const id of [...table.keys()].sort()) yield { kind, id, value: table.get(id) } as IdentityRecord;
    }
  }

  clear(): void {
    for (const map of [...Object.values(this.#tables), this.#names]) map.clear();
    this.#projectsByDomain.clear();
    this.#accessByUser.clear();
    this.#loginsByUser.clear();
  }

  set({ kind, id, value }: RecordChange): void {
    // TypeScript cannot tell that the value is of this kind.
    const table = this.#tables[kind] as Map<string, typeof value>;
    const before = table.get(id);
    if (before !== undefined) this.#index({ kind, id, value: before } as IdentityRecord, false);
    if (value === null) table.delete(id);
    else {
      table.set(id, value);
      this.#index({ kind, id, value } as IdentityRecord, true);
    }
  }

  #index(record: IdentityRecord, add: boolean): void {
    const { kind, id } = record;
    if (kind === 'key') {
      updateSet(this.#accessByUser, record.value.user_id, id, add);
    } else if (kind === 'login') {
      updateSet(this.#loginsByUser, id.slice(0, id.indexOf(' ')), id, add);
    } else if (kind !== 'revoked') {
      const domain = domainOf(record.value);
      const name = nameKey(kind, domain, record.value.name);
      if (kind === 'project') updateSet(this.#projectsByDomain, domain, id, add);
      if (add) this.#names.set(name, id);
      else this.#names.delete(name);
    }
  }
}

function domainOf(record: NamedRecords[NamedKind]): string {
  return 'domain_id' in record ? record.domain_id : '';
}

function nameKey(kind: NamedKind, domain: string, name: string): string {
  return JSON.stringify([kind, domain, name]);
}

function updateSet(sets: Map<string, Set<string>>, key: string, member: string, add: boolean): void {
  const set = sets.get(key) ?? new Set();
  if (add) sets.set(key, set.add(member));
  else if (set.delete(member) && set.size === 0) sets.delete(key);
}
