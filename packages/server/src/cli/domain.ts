import { command, printLine } from './command.ts';
import { withIdentity } from './data-folder.ts';
import { printList } from './list.ts';

const add = command({
  name: 'domain add <name>',
  about: 'add a domain: a customer, with its own projects and users',
  settings: ['data', 'json'],
  required: ['data'],
  run: ({ data, json }, [name = ''], io) =>
    withIdentity(data, io, async (identity) => {
      const domain = await identity.administration.addDomain(name);
      printLine(io.stdout, json ? JSON.stringify(domain) : `domain ${domain.name} has the ID ${domain.id}`);
      return 0;
    }),
});

const list = command({
  name: 'domain list',
  about: 'list the domains',
  settings: ['data', 'json'],
  required: ['data'],
  run: ({ data, json }, _operands, io) =>
    withIdentity(data, io, async (identity) =>
      printList(io, json, identity.administration.domains(), ({ id, name, enabled }) => [
        id,
        name,
        enabled ? '' : 'disabled',
      ]),
    ),
});

function setEnabled(enabled: boolean) {
  return command({
    name: `domain ${enabled ? 'enable' : 'disable'} <domain>`,
    about: enabled
      ? 'let a disabled domain be used again'
      : 'refuse every call of its users and to its projects',
    settings: ['data'],
    required: ['data'],
    run: ({ data }, [domain = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        await administration.setDomainEnabled(administration.domain(domain).id, enabled);
        return 0;
      }),
  });
}

const remove = command({
  name: 'domain delete <domain>',
  about: 'delete a domain that has neither projects nor users',
  settings: ['data'],
  required: ['data'],
  run: ({ data }, [domain = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      await administration.removeDomain(administration.domain(domain).id);
      return 0;
    }),
});

export const domainCommands = [add, list, setEnabled(true), setEnabled(false), remove];
