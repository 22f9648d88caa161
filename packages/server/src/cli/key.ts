import { closeSync, openSync, writeSync } from 'node:fs';
import { KeyLimitError } from '../identity/errors.ts';
import { keyFileCsv } from '../identity/records.ts';
import { command, printLine, UserError } from './command.ts';
import { withIdentity } from './data-folder.ts';
import { printList } from './list.ts';

const add = command({
  name: 'key add',
  about: 'make an access key for a user, who can have two; the secret is shown this once',
  settings: ['data', 'userOf', 'description', 'csv', 'json'],
  required: ['data', 'userOf'],
  run: ({ data, userOf, description, csv, json }, _operands, io) =>
    withIdentity(data, io, async ({ administration }) => {
      const user = administration.user(userOf);
      // Opened first: a key whose file cannot be written would be a secret that nobody has.
      const file = csv === undefined ? null : createFile(csv);
      try {
        const key = await administration.addKey(user.id, description);
        if (file !== null) writeSync(file, keyFileCsv(user.name, key));
        if (json) printLine(io.stdout, JSON.stringify(key));
        else if (file === null) {
          printLine(io.stdout, `access key ID      ${key.access}`);
          printLine(io.stdout, `secret access key  ${key.secret}   (shown this once)`);
        } else printLine(io.stdout, `access key ${key.access} is in ${csv}`);
        return 0;
      } catch (error) {
        if (error instanceof KeyLimitError)
          throw new UserError(`${user.name} has two access keys, which is the limit`);
        throw error;
      } finally {
        if (file !== null) closeSync(file);
      }
    }),
});

const list = command({
  name: 'key list',
  about: 'list the access keys of a user, without their secrets',
  settings: ['data', 'userOf', 'json'],
  required: ['data', 'userOf'],
  run: ({ data, userOf, json }, _operands, io) =>
    withIdentity(data, io, async ({ administration }) => {
      const keys = administration.keysOf(administration.user(userOf).id);
      return printList(io, json, keys, ({ access, status, description }) => [access, status, description]);
    }),
});

function setStatus(status: 'active' | 'inactive') {
  return command({
    name: `key ${status === 'active' ? 'enable' : 'disable'} <access>`,
    about: status === 'active' ? 'let a disabled key be used again' : 'refuse what is signed with the key',
    settings: ['data'],
    required: ['data'],
    run: ({ data }, [access = ''], io) =>
      withIdentity(data, io, async (identity) => {
        await identity.administration.changeKey(access, { status });
        return 0;
      }),
  });
}

const remove = command({
  name: 'key delete <access>',
  about: 'delete an access key',
  settings: ['data'],
  required: ['data'],
  run: ({ data }, [access = ''], io) =>
    withIdentity(data, io, async (identity) => {
      await identity.administration.removeKey(access);
      return 0;
    }),
});

/** Never over a file that is there: it may hold the secret of another key. */
function createFile(path: string): number {
  try {
    return openSync(path, 'wx', 0o600);
  } catch (error) {
    throw new UserError(`${path} cannot be made: ${(error as NodeJS.ErrnoException).code}`);
  }
}

export const keyCommands = [add, list, setStatus('active'), setStatus('inactive'), remove];
