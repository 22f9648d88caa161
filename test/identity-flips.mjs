/**
 * Flips random bits of an identity file, one at a time, and reports the results of logins and lookups, of `verify` and of
 * `repair`. Runs as a process of its own, because LMDB may crash on damaged pages.
 *
 *   node identity-flips.mjs DIRECTORY PROJECT OFFSETS_JSON      prints a JSON line for each flip
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { UserError } from '../packages/server/dist/cli/command.js';
import { withEmbeddedIdentity } from '../packages/server/dist/cli/data-directory.js';
import { runProgram } from '../packages/server/dist/cli/program.js';
import { IdentityDamaged } from '../packages/server/dist/identity/errors.js';

const NAMES = ['ann', 'bob', 'cid'];
const PASSWORD = 'a long password';
const FROM = { address: '127.0.0.1', via: 'api' };
const CONTEXT = { env: {}, now: Date.now };

const [directory, project, random] = process.argv.slice(2);
const secrets = await withEmbeddedIdentity(directory, CONTEXT, fill);
const original = `${directory}-original`;
// A backup has no free pages.
await run('backup', directory, '--to', original);
const bytes = readFileSync(join(original, 'identity.mdb'));
const expected = [];
for (const name of NAMES) expected.push(await results(original, [name]));

// Every second flip is anywhere in the file, the others are where it is not empty.
const used = [...bytes.keys()].filter((offset) => bytes[offset] !== 0);
for (const [index, share] of JSON.parse(random).entries()) {
  const position =
    index % 2 === 0
      ? Math.floor(share * bytes.length * 8)
      : (used[Math.floor(share * used.length)] ?? 0) * 8 + (Math.floor(share * 1e6) % 8);
  const copy = `${directory}-${index}`;
  cpSync(original, copy, { recursive: true });
  const damaged = Buffer.from(bytes);
  damaged[position >> 3] ^= 1 << (position & 7);
  writeFileSync(join(copy, 'identity.mdb'), damaged);
  // Checking a password takes long.
  const login = [NAMES[index % NAMES.length]];
  const right = expected[index % NAMES.length];
  const compare = async () => {
    const found = await results(copy, login);
    return {
      errors: found.filter((result) => result === 'error').length,
      wrong: found.filter((result, i) => result !== 'error' && result !== right[i]),
    };
  };
  const verified = await run('verify', copy);
  const before = await compare();
  const repaired = await run('repair', copy);
  const after = await compare();
  console.log(JSON.stringify({ position, verified, before, repaired, after }));
  rmSync(copy, { recursive: true });
}

async function fill({ administration, authenticator }) {
  const domain_id = administration.onlyDomain().id;
  const found = { tokens: [], keys: [], revoked: '' };
  for (const name of NAMES) {
    const user = { name, domain_id, access: 'both', password: PASSWORD, roles: { [project]: ['reader'] } };
    const { id } = await administration.addUser(user);
    await administration.addProject(domain_id, `project of ${name}`);
    found.keys.push(await administration.addKey(id, ''));
    const login = { user: { id }, password: PASSWORD, scope: { project: { id: project } } };
    found.tokens.push((await authenticator.login(login, FROM)).text);
    const { text: revoked, description } = await authenticator.login(login, FROM);
    await authenticator.revoke(description.token);
    found.revoked = revoked;
  }
  return found;
}

/** The result of each login and lookup as text; `error` if it is refused as damaged. */
async function results(path, logins) {
  const checks = [
    ...logins.map((name) => async ({ authenticator, administration }) => {
      const user = { name, domain: { id: administration.onlyDomain().id } };
      const token = await authenticator.login(
        { user, password: PASSWORD, scope: { project: { id: project } } },
        FROM,
      );
      return token.description?.user.name ?? token;
    }),
    ...secrets.tokens.map((token) => async ({ authenticator }) => {
      const checked = await authenticator.checkToken(token);
      return checked.user ? [checked.user.name, checked.roles, checked.scope.project.id] : checked;
    }),
    ...secrets.keys.map(({ access, secret }) => async ({ authenticator }) => {
      const caller = await authenticator.checkSecret(access, secret, FROM);
      return caller.user?.name ?? caller;
    }),
    async ({ authenticator }) => ['revoked', await authenticator.checkToken(secrets.revoked)],
    async ({ administration }) => administration.users().map(({ id, name, roles }) => [id, name, roles]),
    async ({ administration }) =>
      administration.projects().map(({ id, name, enabled }) => [id, name, enabled]),
    ...NAMES.map(
      (name) =>
        ({ administration }) =>
          administration.keysOf(administration.userNamed(name).id).length,
    ),
  ];
  const attempt = async (action) => {
    try {
      return JSON.stringify(await action());
    } catch (error) {
      // UserError: the file is refused when it is opened.
      return error instanceof IdentityDamaged || error instanceof UserError ? 'error' : `${error.stack}`;
    }
  };
  const found = [];
  const opened = await attempt(() =>
    withEmbeddedIdentity(path, CONTEXT, async (identity) => {
      for (const check of checks) found.push(await attempt(async () => check(identity)));
    }),
  );
  return opened === undefined ? found : checks.map(() => opened);
}

async function run(command, data, ...args) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const printed = Promise.all([text(stdout), text(stderr)]);
  const io = {
    ...CONTEXT,
    stdin: new PassThrough().end(),
    stdout,
    stderr,
    stop: new AbortController().signal,
  };
  const status = await runProgram([command, '--data', data, ...args], io);
  stdout.end();
  stderr.end();
  return { status, text: (await printed).join('') };
}
