/** Adds, renames and deletes hosts on behalf of administrators, with an audit line per change. */
import type { AddedHost, DeletedHost, NewHost, RenamedHost, Store } from '../store/store.ts';
import { type Actor, type AuditEntry, type AuditTrail, newAuditEntry } from './audit-trail.ts';

interface ProjectOwners {
  audit: AuditTrail;
  lookup: { project(id: string): { domain_id: string } | undefined };
}

export function hostAdministration(store: Store, { audit: trail, lookup }: ProjectOwners) {
  const ownerOf = (project: string) => {
    const owner = lookup.project(project);
    return owner ? { domain_id: owner.domain_id } : {};
  };

  /**
   * The audit line comes first, so that no change lacks one. The store has its own transaction: if it then refuses the
   * change or fails, a second line says so.
   */
  async function change<R extends { kind: string }>(
    entry: AuditEntry,
    refusal: R | null,
    success: R['kind'],
    work: () => Promise<R>,
  ): Promise<R> {
    if (refusal !== null) {
      void trail.note({ ...entry, outcome: 'refused', reason: refusal.kind });
      return refusal;
    }
    await trail.append(entry);
    try {
      const result = await work();
      if (result.kind !== success) void trail.note({ ...entry, outcome: 'refused', reason: result.kind });
      return result;
    } catch (error) {
      void trail.note({ ...entry, outcome: 'failed', reason: (error as Error).message });
      throw error;
    }
  }

  return {
    async add(actor: Actor, host: NewHost): Promise<AddedHost> {
      trail.admit(actor);
      const { project, hostname, id } = host;
      const hosts = await store.hosts(project);
      const object = { type: 'host', name: hostname, ...(id === undefined ? {} : { id }) } as const;
      const entry = newAuditEntry(actor, 'host.add', object, {
        ...ownerOf(project),
        after: { project_id: project, hostname },
      });
      const existing = hosts.find((one) => one.hostname === hostname);
      const refusal: AddedHost | null = existing ? { kind: 'exists', host: existing } : null;
      return change(entry, refusal, 'added', () => store.addHost(host));
    },
    async rename(actor: Actor, host: Parameters<Store['renameHost']>[0]): Promise<RenamedHost> {
      trail.admit(actor);
      const { project, id, hostname } = host;
      const hosts = await store.hosts(project);
      const before = hosts.find((one) => one.id === id);
      const holder = hosts.find((one) => one.hostname === hostname && one.id !== id);
      const refusal: RenamedHost | null =
        before === undefined ? { kind: 'unknown' } : holder ? { kind: 'name_taken', host: holder } : null;
      const object = { type: 'host', id, name: before?.hostname ?? hostname } as const;
      const entry = newAuditEntry(actor, 'host.rename', object, {
        ...ownerOf(project),
        ...(before ? { before: { project_id: project, hostname: before.hostname } } : {}),
        after: { project_id: project, hostname },
      });
      return change(entry, refusal, 'renamed', () => store.renameHost(host));
    },
    async delete(actor: Actor, { project, id }: { project: string; id: string }): Promise<DeletedHost> {
      trail.admit(actor);
      const before = (await store.hosts(project)).find((one) => one.id === id);
      const object = { type: 'host', id, ...(before ? { name: before.hostname } : {}) } as const;
      const entry = newAuditEntry(actor, 'host.delete', object, {
        ...ownerOf(project),
        before: { project_id: project, ...(before ? { hostname: before.hostname } : {}) },
      });
      const refusal: DeletedHost | null = before === undefined ? { kind: 'unknown' } : null;
      return change(entry, refusal, 'deleted', () => store.deleteHost({ project, id }));
    },
  };
}
