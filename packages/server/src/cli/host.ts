import { hostAdministration } from '../audit/host-administration.ts';
import { normalHostname } from '../event.ts';
import { command, printLine, UserError } from './command.ts';
import { withInstallation } from './data-folder.ts';
import { printList } from './list.ts';
import { STORE_SETTINGS } from './store.ts';

/** Hosts that a person adds are not attacker input; this only keeps a script's mistake from filling the store. */
const HOSTS_MAX = 100_000;

const add = command({
  name: 'host add <hostname>',
  about: 'register a host of the project',
  settings: ['data', 'project', 'id', 'json', ...STORE_SETTINGS],
  required: ['data', 'project'],
  run: ({ data, project, id, json, ...where }, [given = ''], io) =>
    withInstallation(data, io, where, async ({ identity, store }) => {
      const hostname = normalHostname(given);
      if (given.includes('://')) throw new UserError(`'${given}' is an address: give the host name alone`);
      if (hostname === null) throw new UserError(`'${given}' is not a host name`);
      const { id: projectId } = identity.administration.project(project);
      const administration = hostAdministration(store, identity.audit);
      const host = { project: projectId, hostname, id, limit: HOSTS_MAX };
      const added = await administration.add(identity.actor, host);
      if (added.kind === 'full') throw new UserError(`the project has its limit of ${HOSTS_MAX} hosts`);
      if (added.kind === 'id_taken')
        throw new UserError(`the ID ${id} is that of ${added.host.hostname} already`);
      if (added.kind === 'exists')
        throw new UserError(`${hostname} is registered already, with the ID ${added.host.id}`);
      printLine(
        io.stdout,
        json ? JSON.stringify(added.host) : `host ${hostname} has the ID ${added.host.id}`,
      );
      return 0;
    }),
});

const list = command({
  name: 'host list',
  about: 'list the hosts of the project',
  settings: ['data', 'project', 'json', ...STORE_SETTINGS],
  required: ['data', 'project'],
  run: ({ data, project, json, ...where }, _operands, io) =>
    withInstallation(data, io, where, async ({ identity, store }) => {
      const hosts = await store.hosts(identity.administration.project(project).id);
      return printList(io, json, hosts, ({ id, hostname }) => [id, hostname]);
    }),
});

export const hostCommands = [add, list];
