/** Hosts and log sources of a project. */
import { hostAdministration } from '../audit/host-administration.ts';
import { DATA, STORE_OPTIONS } from '../config.ts';
import { normalHostname } from '../event.ts';
import { isDeletedHost } from '../store/ids.ts';
import { command, printLine, printList, printResult, UserError } from './command.ts';
import { NAME_THE_HOST } from './ingest-summary.ts';
import { locationProblems, withInstallation, withProject } from './installation.ts';
import { identifier, JSON_OUTPUT, option, PROJECT, required } from './options.ts';

/** Only keeps a faulty script from filling the store: people who add hosts are trusted. */
const HOSTS_MAX = 100_000;

const OPTIONS = {
  data: DATA,
  project: required(PROJECT),
  json: JSON_OUTPUT,
  ...STORE_OPTIONS,
};

const addHost = command({
  name: 'host add <hostname>',
  description: 'register a host',
  options: {
    ...OPTIONS,
    id: option('--id <id>', 'ID of the host [default: derived from the name]', identifier),
  },
  check: locationProblems,
  run: ({ project, id, json, ...location }, [given = ''], io) =>
    withInstallation(location, io, async ({ identity, store }) => {
      const hostname = normalHostname(given);
      if (given.includes('://')) throw new UserError(`'${given}' is a URL: use the host name only`);
      if (hostname === null) throw new UserError(`'${given}' is not a host name`);
      const { id: projectId } = identity.administration.projectNamed(project);
      const host = { project: projectId, hostname, id, limit: HOSTS_MAX };
      const added = await hostAdministration(store, identity).add(identity.actor, host);
      if (added.kind === 'full')
        throw new UserError(`the project already has ${HOSTS_MAX} hosts, the maximum`);
      if (added.kind === 'id_taken')
        throw new UserError(
          `the ID ${id} already belongs to ${isDeletedHost(added.host) ? 'a host that was deleted' : added.host.hostname}`,
        );
      if (added.kind === 'exists')
        throw new UserError(`${hostname} is already registered, with the ID ${added.host.id}`);
      return printResult(io, json, added.host, `host ${hostname} has the ID ${added.host.id}`);
    }),
});

const deleteHost = command({
  name: 'host delete <host>',
  description:
    'delete a host, by ID or name; its counts stay in the total of the project. A log that names it registers it again',
  options: { data: DATA, project: required(PROJECT), ...STORE_OPTIONS },
  check: locationProblems,
  run: ({ project, ...location }, [given = ''], io) =>
    withInstallation(location, io, async ({ identity, store }) => {
      const { id: projectId } = identity.administration.projectNamed(project);
      const hosts = (await store.hosts(projectId)).filter(
        (one) => one.id === given || one.hostname === given,
      );
      const [host, another] = hosts;
      if (host === undefined) {
        throw new UserError(`the project has no host '${given}' ('wafstat host list' shows the hosts)`);
      }
      if (another !== undefined) {
        const names = hosts.map(({ id, hostname }) => `${hostname} has the ID ${id}`).join(', ');
        throw new UserError(`'${given}' is the ID of one host and the name of another: ${names}`);
      }
      await hostAdministration(store, identity).delete(identity.actor, {
        project: projectId,
        id: host.id,
      });
      return 0;
    }),
});

const listHosts = command({
  name: 'host list',
  description: "list the hosts of a project; to query a running service instead, use 'wafstat hosts'",
  options: OPTIONS,
  check: locationProblems,
  run: ({ json, ...location }, _operands, io) =>
    withProject(location, io, async (store, projectId) =>
      printList(io, json, await store.hosts(projectId), ({ id, hostname }) => [id, hostname]),
    ),
});

const listSources = command({
  name: 'source list',
  description:
    'list the log sources of a project: events, events without a host, first and last event, dropped lines by reason; ' +
    "to query a running service instead, use 'wafstat sources'",
  options: OPTIONS,
  check: locationProblems,
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
        printLine(
          io.stderr,
          `Events without a host count in the project total only. ${NAME_THE_HOST} ` +
            "If the log names the host, register it with 'wafstat host add', or raise --hosts-max.",
        );
      }
      return status;
    }),
});

export const hostCommands = [addHost, listHosts, deleteHost];
export const sourceCommands = [listSources];
