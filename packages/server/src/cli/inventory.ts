/** Hosts and log sources of a project. */
import { hostAdministration } from '../audit/host-administration.ts';
import { LOCATION_OPTIONS } from '../config.ts';
import { normalHostname } from '../event.ts';
import { isDeletedHost } from '../store/ids.ts';
import type { Host, Store } from '../store/store.ts';
import { printList, printResult, printText, subcommand, UserError } from './command.ts';
import { NAME_THE_HOST } from './ingest-summary.ts';
import { withInstallation, withProject } from './installation.ts';
import { identifier, JSON_OUTPUT, option, PROJECT, required } from './options.ts';
import { confirm, confirmationProblems, YES } from './prompt.ts';

/** Only keeps a faulty script from filling the store: people who add hosts are trusted. */
const HOSTS_MAX = 100_000;

const PROJECT_OPTIONS = { ...LOCATION_OPTIONS, project: required(PROJECT) };
const OPTIONS = { ...PROJECT_OPTIONS, json: JSON_OUTPUT };

const addHost = subcommand('add <hostname>', 'register a host', {
  options: {
    ...OPTIONS,
    id: option('--id <id>', 'ID of the host [default: derived from the name]', identifier),
  },
  run: ({ project, id, json, ...location }, [given = ''], io) =>
    withInstallation(location, io, async ({ identity, store }) => {
      const hostname = validHostname(given);
      const { id: projectId } = identity.administration.projectNamed(project);
      const host = { project: projectId, hostname, id, limit: HOSTS_MAX };
      const added = await hostAdministration(store, identity).add(identity.actor, host);
      if (added.kind === 'full')
        throw new UserError(`the project already has ${HOSTS_MAX} hosts, the maximum`);
      if (added.kind === 'id_taken')
        throw new UserError(
          `the ID ${id} already belongs to ${isDeletedHost(added.host) ? 'a host that was deleted' : added.host.hostname}`,
        );
      if (added.kind === 'exists') throw alreadyRegistered(added.host);
      return printResult(io, json, added.host, `host ${hostname} has the ID ${added.host.id}`);
    }),
});

const renameHost = subcommand(
  'rename <host> <hostname>',
  'rename a host, by ID or name; its ID and its counts stay',
  {
    options: PROJECT_OPTIONS,
    run: ({ project: name, ...location }, [given = '', newName = ''], io) =>
      withInstallation(location, io, async ({ identity, store }) => {
        const hostname = validHostname(newName);
        const { id: project } = identity.administration.projectNamed(name);
        const { id, hostname: oldName } = await findHost(store, project, given);
        const hosts = hostAdministration(store, identity);
        const renamed = await hosts.rename(identity.actor, { project, id, hostname });
        if (renamed.kind === 'name_taken') throw alreadyRegistered(renamed.host);
        if (renamed.kind === 'unknown') throw unknownHost(given);
        printText(
          io.stdout,
          `renamed ${oldName} to ${hostname}; the ID is still ${id}. A log that names ${oldName} registers it again`,
        );
        return 0;
      }),
  },
);

const deleteHost = subcommand(
  'delete <host>',
  'delete a host, by ID or name; its counts stay in the total of the project. A log that names it registers it again',
  {
    options: { ...PROJECT_OPTIONS, yes: YES },
    check: confirmationProblems,
    run: ({ project: name, yes, ...location }, [given = ''], io) =>
      withInstallation(location, io, async ({ identity, store }) => {
        const { id: project } = identity.administration.projectNamed(name);
        const { id, hostname } = await findHost(store, project, given);
        await confirm(
          io,
          yes,
          hostname,
          `This deletes the host ${hostname}. Its counts stay in the total of the project only.`,
        );
        await hostAdministration(store, identity).delete(identity.actor, { project, id });
        return 0;
      }),
  },
);

function validHostname(given: string): string {
  const hostname = normalHostname(given);
  if (given.includes('://')) throw new UserError(`'${given}' is a URL: use the host name only`);
  if (hostname === null) throw new UserError(`'${given}' is not a host name`);
  return hostname;
}

function alreadyRegistered({ hostname, id }: Host): UserError {
  return new UserError(`${hostname} is already registered, with the ID ${id}`);
}

function unknownHost(given: string): UserError {
  return new UserError(`the project has no host '${given}' ('wafstat host list' shows the hosts)`);
}

/** By ID or name. */
async function findHost(store: Store, project: string, given: string): Promise<Host> {
  const hosts = (await store.hosts(project)).filter((one) => one.id === given || one.hostname === given);
  const [host, another] = hosts;
  if (host === undefined) throw unknownHost(given);
  if (another === undefined) return host;
  const names = hosts.map(({ id, hostname }) => `${hostname} has the ID ${id}`).join(', ');
  throw new UserError(`'${given}' is the ID of one host and the name of another: ${names}`);
}

const listHosts = subcommand(
  'list',
  "list the hosts of a project; to query a running service instead, use 'wafstat hosts'",
  {
    options: OPTIONS,
    run: ({ json, ...location }, _operands, io) =>
      withProject(location, io, async (store, projectId) =>
        printList(io, json, await store.hosts(projectId), ({ id, hostname }) => [id, hostname]),
      ),
  },
);

const listSources = subcommand(
  'list',
  'list the log sources of a project: events, events without a host, first and last event, dropped lines by reason; ' +
    "to query a running service instead, use 'wafstat sources'",
  {
    options: OPTIONS,
    run: ({ json, ...location }, _operands, io) =>
      withProject(location, io, async (store, projectId) => {
        const sources = await store.sources(projectId);
        const time = (ms: number | null) => (ms === null ? '-' : new Date(ms).toISOString());
        const status = printList(io, json, sources, (source) => [
          source.name,
          source.format,
          source.events === 1 ? '1 event' : `${source.events} events`,
          `${source.without_host} without a host`,
          `${time(source.first_seen)} to ${time(source.last_seen)}`,
          Object.entries(source.dropped)
            .map(([reason, n]) => `${reason} ${n}`)
            .join(', '),
        ]);
        if (!json && sources.some(({ without_host }) => without_host > 0)) {
          printText(
            io.stderr,
            `Events without a host count in the project total only. ${NAME_THE_HOST} ` +
              "If the log names the host, register it with 'wafstat host add', or raise --hosts-max.",
          );
        }
        return status;
      }),
  },
);

export const hostCommands = [addHost, listHosts, renameHost, deleteHost];
export const sourceCommands = [listSources];
