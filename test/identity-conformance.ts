/** One suite for all identity stores. Random changes are compared with a plain map. */
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import {
  type AuditEntry,
  type AuditRecord,
  type AuditTrail,
  allRecords,
  newAuditEntry,
} from '../packages/server/src/audit/audit-trail.ts';
import { Administration } from '../packages/server/src/identity/administration.ts';
import type {
  IdentityRecord,
  IdentityStore,
  IdentityWriter,
} from '../packages/server/src/identity/identity-store.ts';
import {
  type AccessKey,
  type Domain,
  type Project,
  ROLES,
  rolesIn,
  type User,
} from '../packages/server/src/identity/records.ts';
import { createPasswords, createSecretCipher } from '../packages/server/src/identity/secrets.ts';
import { scaled } from './random.ts';

export interface IdentityUnderTest {
  store: IdentityStore;
  audit: AuditTrail;
  /** A second store on the same data, as another process would open it. */
  another(): Promise<IdentityStore>;
  destroy(): Promise<void>;
}

/** Open the stores with this limit. */
export const REVOCATIONS_KEPT = 3;

const NOW = Date.UTC(2026, 6, 1);
const DAY_MS = 86_400_000;
const ACTOR = { user: 'admin', via: 'command line' } as const;

const domain = (id: string): Domain => ({ id: `d${id}`, name: `domain ${id}`, enabled: true });
const project = (id: string, enabled = true): Project => ({
  id: `p${id}`,
  name: `project ${id}`,
  domain_id: 'd1',
  enabled,
  created: NOW,
});
const user = (id: string, token_epoch = 0): User => ({
  id: `u${id}`,
  name: `user ${id} \u{1f600} ä`,
  domain_id: 'd1',
  enabled: true,
  access: 'both',
  password_hash: 'x',
  created: NOW,
  token_epoch,
  roles: { p1: ['reader'] },
});
const key = (id: string, owner: string, description = ''): AccessKey => ({
  access: `AK${id}`,
  user_id: `u${owner}`,
  description,
  status: 'active',
  created: NOW,
  sealed_secret: 'sealed',
});

const entry = (name: string): AuditEntry => newAuditEntry(ACTOR, 'user.add', { type: 'user', name });

const administrationOf = (store: IdentityStore, audit: AuditTrail) =>
  new Administration(
    {
      store,
      audit,
      now: () => NOW,
      passwords: createPasswords(),
      cipher: createSecretCipher(Buffer.alloc(32)),
      alertCipher: createSecretCipher(Buffer.alloc(32)),
    },
    { user: 'admin', via: 'api' },
  );

async function recordsOf(trail: AuditTrail): Promise<AuditRecord[]> {
  return (await allRecords(trail)).filter((record) => record !== 'damaged');
}

export function identityConformance(
  name: string,
  open: (now: () => number) => Promise<IdentityUnderTest>,
): void {
  describe(`identity in ${name}`, () => {
    const opened: IdentityUnderTest[] = [];
    afterEach(async () => {
      for (const each of opened.splice(0)) await each.destroy();
    });

    async function start(): Promise<IdentityUnderTest> {
      const under = await open(() => NOW);
      opened.push(under);
      return under;
    }

    test('finds records by ID and name, keys by user, in every store', async () => {
      const { store, another } = await start();
      await store.change((write) => {
        write.put('domain', domain('1'));
        write.put('project', project('1'));
        write.put('user', user('1'));
        for (const id of ['2', '1']) write.putKey(key(id, '1'));
      });
      const other = await another();
      for (const each of [store, other]) {
        expect(each.byName('domain', '', 'domain 1')).toEqual(domain('1'));
        expect(each.byName('project', 'd1', 'project 1')).toEqual(project('1'));
        expect(each.byName('user', 'd1', user('1').name)).toEqual(user('1'));
        expect(each.keysOf('u1')).toEqual([key('1', '1'), key('2', '1')]);
        expect([each.get('user', 'u2'), each.byName('user', 'd2', user('1').name)]).toEqual([
          undefined,
          undefined,
        ]);
        expect([each.get('user', 'x'.repeat(10_000)), each.byName('domain', '', 'x'.repeat(10_000))]).toEqual(
          [undefined, undefined],
        );
        expect([each.list('domain'), each.list('project'), each.list('user')]).toEqual([
          [domain('1')],
          [project('1')],
          [user('1')],
        ]);
      }
      await other.close();
    });

    test('annotations belong to a project, in every store, and are deleted with it', async () => {
      const { store, audit, another } = await start();
      const other = await another();
      await store.change((write) => {
        for (const id of ['1', '2']) write.put('project', project(id));
      });
      const administration = administrationOf(store, audit);
      const given = { time: NOW, text: 'release 4.2', link: 'https://git.example/4.2' };
      const first = await administration.addAnnotation('p1', given);
      const later = await administration.addAnnotation('p1', { ...given, time: NOW + 1, link: null });
      const kept = await administration.addAnnotation('p2', given);
      await other.refresh();
      const changes = other.changes();
      expect(administrationOf(other, audit).annotationsOf('p1')).toEqual([later, first]);
      await expect(administration.removeAnnotation('p2', first.id)).rejects.toThrow('unknown annotation');
      await administration.removeAnnotation('p1', first.id);
      await other.refresh();
      expect([other.annotationsOf('p1'), other.changes()]).toEqual([[later], changes]);
      await administration.removeProject('p1', { deleteDetails: async () => {} }, { confirm: 'project 1' });
      await other.refresh();
      expect([...other.records()].filter(({ kind }) => kind === 'annotation')).toEqual([
        { kind: 'annotation', id: kept.id, value: kept },
      ]);
      await other.close();
    });

    test('refresh tells whether another process has changed something, and shows it', async () => {
      const { store, another } = await start();
      const other = await another();
      await store.refresh();
      store.changes();
      await other.change((write) => write.put('domain', domain('9')));
      expect(await store.refresh()).toBe(true);
      expect(store.get('domain', 'd9')).toEqual(domain('9'));
      expect(await store.refresh()).toBe(false);
      await other.close();
    });

    test('a change that throws changes nothing, and is not seen by anyone', async () => {
      const { store, another } = await start();
      const other = await another();
      await store.change((write) => write.put('user', user('1')));
      const failing = store.change((write) => {
        write.put('user', user('1', 7));
        write.put('user', user('2'));
        write.revoke({ id: 't', expires_at: NOW + 1 }, NOW);
        // The action sees its own writes.
        expect([
          store.get('user', 'u1')?.token_epoch,
          store.get('user', 'u2')?.id,
          store.get('revoked', 't') !== undefined,
        ]).toEqual([7, 'u2', true]);
        throw new Error('no');
      });
      await expect(failing).rejects.toThrow('no');
      await other.refresh();
      for (const each of [store, other])
        expect([...each.records()]).toEqual([{ kind: 'user', id: 'u1', value: user('1') }]);
      await other.close();
    });

    test('changes of several stores at once run one after the other', async () => {
      const { store, another } = await start();
      const stores = [store, await another()];
      await store.change((write) => write.put('user', user('1')));
      const increment = (each: IdentityStore) =>
        each.change((write) => write.put('user', user('1', (each.get('user', 'u1')?.token_epoch ?? 0) + 1)));
      await Promise.all(Array.from({ length: 10 }, () => stores.map(increment)).flat());
      const addOnce = (each: IdentityStore, i: number) =>
        each.change((write) => {
          if (each.byName('project', 'd1', 'project 1')) throw new Error('taken');
          write.put('project', { ...project('1'), id: `p${i}` });
        });
      const added = await Promise.allSettled(stores.map(addOnce));
      expect(added.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
      for (const each of stores) {
        await each.refresh();
        expect(each.get('user', 'u1')?.token_epoch).toBe(20);
        expect(each.list('project')).toHaveLength(1);
      }
      await stores[1]?.close();
    });

    test('of two administrators who delete each other at once, one stays', async () => {
      const { store, audit, another } = await start();
      const stores = [store, await another()] as const;
      await store.change((write) => {
        write.put('domain', domain('1'));
        for (const id of ['1', '2']) write.put('user', { ...user(id), roles: { d1: ['admin'] } });
      });
      await stores[1].refresh();
      const remove = (each: IdentityStore, id: string) => administrationOf(each, audit).removeUser(id);
      const removed = await Promise.allSettled([remove(stores[0], 'u2'), remove(stores[1], 'u1')]);
      expect(removed.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      for (const each of stores) {
        await each.refresh();
        expect(each.list('user')).toHaveLength(1);
      }
      await stores[1].close();
    });

    test('of two last projects that are deleted at once, one stays, with its top lists', async () => {
      const { store, audit, another } = await start();
      const stores = [store, await another()] as const;
      await store.change((write) => {
        write.put('domain', domain('1'));
        for (const id of ['1', '2']) write.put('project', project(id));
      });
      await stores[1].refresh();
      const emptied: string[] = [];
      const statistics = { deleteDetails: async (id: string) => void emptied.push(id) };
      const remove = (each: IdentityStore, id: string) =>
        administrationOf(each, audit).removeProject(id, statistics);
      const removed = await Promise.allSettled([remove(stores[0], 'p1'), remove(stores[1], 'p2')]);
      expect(removed.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      await store.refresh();
      const [left] = store.list('project');
      expect(emptied).toEqual([left?.id === 'p1' ? 'p2' : 'p1']);
      await stores[1].close();
    });

    test('a change of a deleted record does not change one of another domain with this ID as its name', async () => {
      const { store, audit } = await start();
      const theirs = { user: { ...user('9'), name: 'u1' }, project: { ...project('9'), name: 'p1' } };
      await store.change((write) => {
        for (const id of ['1', '2']) write.put('domain', domain(id));
        write.put('user', { ...theirs.user, domain_id: 'd2' });
        write.put('project', { ...theirs.project, domain_id: 'd2' });
        write.put('domain', { ...domain('9'), name: 'd8' });
      });
      const before = [...store.records()];
      const administration = administrationOf(store, audit);
      const anyway = { confirm: 'u1' };
      const changes = [
        () => administration.setPassword('u1', 'a new password'),
        () => administration.changeRole('grant', 'u1', 'd1', 'admin'),
        () => administration.changeUser('u1', { password: 'a new password' }),
        () => administration.setEnabled('user', 'u1', false, anyway),
        () => administration.removeUser('u1', anyway),
        () => administration.addKey('u1', ''),
        () => administration.setEnabled('project', 'p1', false, { confirm: 'p1' }),
        () => administration.removeProject('p1', { deleteDetails: async () => {} }, { confirm: 'p1' }),
        () => administration.setEnabled('domain', 'd8', false),
        () => administration.removeDomain('d8'),
      ];
      for (const change of changes)
        await expect(change()).rejects.toThrow(/^unknown (user|project|domain) '/);
      expect([...store.records()]).toEqual(before);
      expect([administration.userNamed('u1').id, administration.projectNamed('p1').id]).toEqual(['u9', 'p9']);
    });

    test('roles find the same projects as a scan of all projects', async () => {
      const { store, audit } = await start();
      const domains = ['d1', 'd10', 'd2'];
      const names = ['a', '\uffff', '\u{1f600}', '!'];
      const projects = domains.flatMap((domain_id, i) =>
        names.map((name, j) => ({ ...project(`${i}${j}`, j !== 1), name, domain_id })),
      );
      await store.change((write) => {
        for (const id of ['1', '10', '2']) write.put('domain', domain(id));
        for (const each of projects) write.put('project', each);
      });
      for (const domainId of domains) {
        const found = byId(store.projectsIn(domainId));
        expect(found).toEqual(projects.filter(({ domain_id }) => domain_id === domainId));
        expect(names.map((name) => store.similarName('project', domainId, name))).toEqual(names);
      }
      expect(['domain 1', 'domain'].map((name) => store.similarName('domain', '', name))).toEqual([
        'domain 1',
        undefined,
      ]);
      for (const domainId of ['d', 'x'.repeat(10_000)])
        expect(store.similarName('project', domainId, 'a')).toBeUndefined();
      expect([store.projectsIn('d'), store.projectsIn('x'.repeat(10_000))]).toEqual([[], []]);
      const administration = administrationOf(store, audit);
      const scope = fc.constantFrom(...domains, ...projects.map(({ id }) => id), 'deleted');
      fc.assert(
        fc.property(fc.dictionary(scope, fc.subarray([...ROLES]), { maxKeys: 4 }), (roles) => {
          const all = projects.filter((each) => rolesIn({ roles }, { project: each }).length > 0);
          expect(byId(administration.projectsWithRoles({ roles }))).toEqual(all);
          expect(byId(administration.projectsOf({ roles }))).toEqual(all.filter(({ enabled }) => enabled));
        }),
        { numRuns: scaled(100) },
      );
    });

    test('nobody gets a role in a project or domain that another process has deleted', async () => {
      const { store, audit, another } = await start();
      const other = await another();
      await store.change((write) => {
        for (const id of ['1', '2']) write.put('domain', domain(id));
        for (const id of ['1', '2']) write.put('project', project(id));
        write.put('user', user('1'));
      });
      await other.refresh();
      const administration = administrationOf(other, audit);
      await administrationOf(store, audit).removeProject('p2', { deleteDetails: async () => {} });
      await administrationOf(store, audit).removeDomain('d2');
      const before = [...store.records()];
      const given = { name: 'new', domain_id: 'd1', access: 'both', password: 'a password' } as const;
      const changes: [change: () => Promise<unknown>, unknown: string][] = [
        [() => administration.changeRole('grant', 'u1', 'p2', 'reader'), 'p2'],
        [() => administration.changeRole('grant', 'u1', 'd2', 'admin'), 'd2'],
        [() => administration.addUser({ ...given, roles: { p1: ['reader'], p2: ['reader'] } }), 'p2'],
        [() => administration.addUser({ ...given, domain_id: 'd2', roles: {} }), 'd2'],
        [() => administration.addProject('d2', 'new'), 'd2'],
      ];
      for (const [change, unknown] of changes)
        await expect(change()).rejects.toThrow(new RegExp(`^unknown (project or )?domain '${unknown}'$`));
      expect([...store.records()]).toEqual(before);
      await other.close();
    });

    test('a domain is deleted together with the roles in it, also those of users of other domains', async () => {
      const { store, audit } = await start();
      const theirs: User = { ...user('1'), roles: { d1: ['admin'], d2: ['admin'], p1: ['reader'] } };
      await store.change((write) => {
        for (const id of ['1', '2']) write.put('domain', domain(id));
        write.put('project', project('1'));
        write.put('user', theirs);
        write.put('user', user('2'));
      });
      await administrationOf(store, audit).removeDomain('d2');
      expect(store.get('user', 'u1')).toEqual({ ...theirs, roles: { d1: ['admin'], p1: ['reader'] } });
      expect(store.get('user', 'u2')).toEqual(user('2'));
    });

    test('roles in a project that another process has deleted can be removed', async () => {
      const { store, audit, another } = await start();
      const other = await another();
      await store.change((write) => {
        write.put('domain', domain('1'));
        for (const id of ['1', '2']) write.put('project', project(id));
        write.put('user', { ...user('1'), roles: { p1: ['reader'], p2: ['reader'] } });
      });
      await other.refresh();
      await administrationOf(store, audit).removeProject('p2', { deleteDetails: async () => {} });
      await administrationOf(other, audit).changeRole('revoke', 'u1', 'p2', 'reader');
      await store.refresh();
      expect(store.get('user', 'u1')?.roles).toEqual({ p1: ['reader'], p2: [] });
      await other.close();
    });

    test('every change has its audit entry; one that throws has none, unless it was recorded before', async () => {
      const { store, audit } = await start();
      await store.change((write) => {
        write.put('user', user('1'));
        write.audit(entry('one'));
      });
      await audit.append(entry('two'));
      await store.change((write) => write.put('user', user('2')));
      await expect(
        store.change(() => {
          throw new Error('no');
        }),
      ).rejects.toThrow('no');
      await audit.note({ ...entry('three'), outcome: 'refused', reason: 'taken' });
      const found = await recordsOf(audit);
      expect(found.map(({ object, outcome }) => [object.name, outcome])).toEqual([
        ['one', 'done'],
        ['two', 'done'],
        ['three', 'refused'],
      ]);
      expect(found[0]).toMatchObject({ time: new Date(NOW).toISOString(), ...ACTOR });
    });

    test('of several changes of a user, all are made or none', async () => {
      const { store, audit } = await start();
      await store.change((write) => {
        write.put('domain', domain('1'));
        write.put('project', project('1'));
        write.put('user', { ...user('1'), roles: { d1: ['admin'] } });
      });
      const cipher = createSecretCipher(Buffer.alloc(32));
      const dependencies = {
        store,
        audit,
        now: () => NOW,
        passwords: createPasswords(),
        cipher,
        alertCipher: cipher,
      };
      const administration = new Administration(dependencies, { user: 'admin', via: 'api' });
      const before = store.get('user', 'u1');
      const changes = { password: 'password', enabled: false };
      await expect(administration.changeUser('u1', changes)).rejects.toThrow('last administrator');
      await store.refresh();
      expect(store.get('user', 'u1')).toEqual(before);
      await administration.changeUser('u1', changes, { confirm: before?.name });
      await store.refresh();
      // Each change is on top of the one before.
      expect(store.get('user', 'u1')).toEqual({
        ...before,
        enabled: false,
        token_epoch: 2,
        password_hash: expect.stringContaining('$argon2id$'),
      });
      const actions = (await recordsOf(audit)).map(({ action, outcome }) => `${action} ${outcome}`);
      expect(actions.sort()).toEqual([
        'user.disable done',
        'user.disable refused',
        'user.set_password done',
        'user.set_password refused',
      ]);
    });

    test('known logins are limited by number and age, end with the user, and do not count as changes', async () => {
      const { store } = await start();
      await store.change((write) => write.put('user', user('1')));
      const changes = store.changes();
      const known = (hashes: string[]) => hashes.map((each) => store.get('login', `u1 ${each}`));
      for (const [i, each] of ['a', 'b', 'c', 'd'].entries())
        await store.putKnownLogin('u1', each, NOW + i, { max: 3, before: NOW });
      expect(known(['a', 'b', 'c', 'd'])).toEqual([undefined, NOW + 1, NOW + 2, NOW + 3]);
      await store.putKnownLogin('u1', 'e', NOW + 9, { max: 3, before: NOW + 3 });
      expect(known(['b', 'c', 'd', 'e'])).toEqual([undefined, undefined, NOW + 3, NOW + 9]);
      await store.putKnownLogin('u2', 'a', NOW, { max: 3, before: 0 });
      expect(store.get('login', 'u2 a')).toBeUndefined();
      expect(store.changes()).toBe(changes);
      await store.change((write) => write.remove('user', user('1')));
      expect(known(['d', 'e'])).toEqual([undefined, undefined]);
    });

    test('expired revocations are deleted, but never the newest, whatever the clocks say', async () => {
      const { store } = await start();
      const revoke = (number: number, now: number) =>
        store.change((write) => write.revoke({ id: `t${number}`, expires_at: number }, now));
      const revoked = () => [...store.records()].map(({ value }) => value);
      for (const number of [1, 2, 3]) await revoke(number, NOW);
      expect(revoked()).toEqual([1, 2, 3]);
      for (const number of [4, 5]) await revoke(number, 2);
      expect(revoked()).toEqual([2, 3, 4, 5]);
      await revoke(6, NOW);
      expect(revoked()).toEqual([4, 5, 6]);
    });

    test('a clock that is ahead for a while deletes no revocation of a valid token', async () => {
      const { store, another } = await start();
      // The clock of a database is right.
      const time = Date.now();
      const token = { id: 'revoked', expires_at: time + DAY_MS };
      await store.change((write) => write.revoke(token, time));
      for (const ahead of [time + 2 * DAY_MS, Date.UTC(2099, 0, 1)])
        await store.change((write) => write.revoke({ id: `at ${ahead}`, expires_at: ahead + DAY_MS }, ahead));
      const other = await another();
      expect([
        store.get('revoked', 'revoked') !== undefined,
        other.get('revoked', 'revoked') !== undefined,
      ]).toEqual([true, true]);
      await other.close();
    });

    test('any changes of two stores lead to the same records as in a plain map', async () => {
      const { store, another } = await start();
      const stores = [store, await another()] as const;
      const model = new Map<string, IdentityRecord['value']>();
      let time = NOW;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
          for (const { by, act } of steps) {
            const [self, peer] = by === 0 ? stores : [stores[1], stores[0]];
            const before = stores.map((each) => each.changes());
            const isChange = await act({ store: self, model, time: ++time });
            expectSame(self, model);
            await peer.refresh();
            // Reads are from the same state until the event loop turns.
            await sleep(1);
            expectSame(peer, model);
            for (const [i, each] of stores.entries()) {
              if (isChange) expect(each.changes()).not.toBe(before[i]);
              else expect(each.changes()).toBe(before[i]);
            }
          }
        }),
        { numRuns: scaled(15) },
      );
      await stores[1].close();
      const reopened = await another();
      expectSame(reopened, model);
      await reopened.close();
    });
  });
}

type Model = Map<string, IdentityRecord['value']>;

/** Resolves to whether records changed, other than known logins. */
type Act = (world: { store: IdentityStore; model: Model; time: number }) => Promise<boolean>;

const id = fc.constantFrom('1', '2', '3');

const change =
  (write: (writer: IdentityWriter, model: Model) => void): Act =>
  async ({ store, model }) => {
    await store.change((writer) => write(writer, model));
    return true;
  };

function put<K extends 'domain' | 'project' | 'user'>(
  kind: K,
  record: { domain: Domain; project: Project; user: User }[K],
) {
  return change((writer, model) => {
    writer.put(kind, record);
    model.set(`${kind} ${record.id}`, record);
  });
}

function remove<K extends 'domain' | 'project' | 'user'>(
  kind: K,
  record: { domain: Domain; project: Project; user: User }[K],
) {
  return change((writer, model) => {
    writer.remove(kind, record);
    model.delete(`${kind} ${record.id}`);
    for (const name of [...model.keys()]) if (name.startsWith(`login ${record.id} `)) model.delete(name);
  });
}

const act: fc.Arbitrary<Act> = fc.oneof(
  id.map((each) => put('domain', domain(each))),
  fc.tuple(id, fc.boolean()).map(([each, enabled]) => put('project', project(each, enabled))),
  fc.tuple(id, fc.nat(9)).map(([each, epoch]) => put('user', user(each, epoch))),
  id.map((each) => remove('project', project(each))),
  id.map((each) => remove('user', user(each))),
  fc.tuple(id, fc.string()).map(([each, text]) =>
    change((writer, model) => {
      // PostgreSQL rejects NUL; administration.ts rejects all control characters.
      const added = key(each, each, text.replaceAll('\0', ''));
      writer.putKey(added);
      model.set(`key ${added.access}`, added);
    }),
  ),
  id.map((each) =>
    change((writer, model) => {
      writer.removeKey(key(each, each));
      model.delete(`key AK${each}`);
    }),
  ),
  fc.nat(20).map((token) =>
    change((writer, model) => {
      writer.revoke({ id: `t${token}`, expires_at: NOW + 1_000_000 }, NOW);
      model.set(`revoked t${token}`, NOW + 1_000_000);
    }),
  ),
  fc.tuple(id, id).map(
    ([owner, network]): Act =>
      async ({ store, model, time }) => {
        await store.putKnownLogin(`u${owner}`, `n${network}`, time, { max: 2, before: 0 });
        const known = [...model]
          .filter(([name]) => name.startsWith(`login u${owner} `))
          .sort(([, a], [, b]) => Number(b) - Number(a));
        for (const [name] of known.slice(1)) model.delete(name);
        if (model.has(`user u${owner}`)) model.set(`login u${owner} n${network}`, time);
        return false;
      },
  ),
  id.map(
    (each): Act =>
      async ({ store }) => {
        const failing = store.change((writer) => {
          writer.put('user', user(each, 99));
          writer.removeKey(key(each, each));
          throw new Error('no');
        });
        await expect(failing).rejects.toThrow('no');
        return false;
      },
  ),
);

/** Users have a domain too. */
function isProjectOf(domainId: string, value: IdentityRecord['value']): boolean {
  return (
    typeof value === 'object' &&
    'domain_id' in value &&
    !('password_hash' in value) &&
    value.domain_id === domainId
  );
}

function byId(projects: readonly Project[]): Project[] {
  return projects.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

const step = fc.record({ by: fc.constantFrom(0, 1), act });

function expectSame(store: IdentityStore, model: Model): void {
  const found = new Map([...store.records()].map((each) => [`${each.kind} ${each.id}`, each.value]));
  expect(Object.fromEntries([...found].sort())).toEqual(Object.fromEntries([...model].sort()));
  for (const each of ['1', '2', '3']) {
    const inDomain = [...model.values()].filter((value) => isProjectOf(`d${each}`, value));
    expect(byId(store.projectsIn(`d${each}`))).toEqual(byId(inDomain as Project[]));
    expect(store.byName('user', 'd1', user(each).name)).toEqual(model.get(`user u${each}`));
    // The same name in another Unicode form.
    const decomposed = user(each).name.normalize('NFD');
    expect(store.byName('user', 'd1', decomposed)).toBeUndefined();
    const similar = model.has(`user u${each}`) ? user(each).name : undefined;
    expect(store.similarName('user', 'd1', decomposed)).toBe(similar);
    expect(store.byName('project', 'd1', `project ${each}`)).toEqual(model.get(`project p${each}`));
    expect(store.keysOf(`u${each}`)).toEqual([model.get(`key AK${each}`)].filter(Boolean));
    expect(store.get('revoked', `t${each}`) !== undefined).toBe(model.has(`revoked t${each}`));
  }
}
