/** Commands for the store outside of the data directory: PostgreSQL. */
import { DIRECTORY, POSTGRES_OPTIONS, STORE_OPTIONS } from '../config.ts';
import { AlreadyInitialised } from '../identity/errors.ts';
import { describeUrl } from '../postgres/url.ts';
import { CopyConflict, copyProject, differences } from '../store/copy.ts';
import { command, printText, progressBar, UserError, warn } from './command.ts';
import {
  copyIdentity,
  describePostgres,
  openStore,
  postgresOptions,
  withInstallation,
} from './installation.ts';
import { flag, oneOf, option, PROJECT, required } from './options.ts';

const DAY_MS = 86_400_000;

const URL_OPTIONS = { ...POSTGRES_OPTIONS, postgresUrl: required(POSTGRES_OPTIONS.postgresUrl) };
const STORE_IN_POSTGRES = { ...URL_OPTIONS, postgresMigrate: STORE_OPTIONS.postgresMigrate };

export const migrateCommand = command({
  examples: ['wafstat migrate --postgres-url postgres://wafstat@127.0.0.1/wafstat'],
  options: {
    ...URL_OPTIONS,
    distributed: option(
      '--distributed',
      'also distribute the tables, with what they contain, over the workers of Citus; stop all services first',
      flag,
    ),
  },
  async run(values, _operands, io) {
    const options = postgresOptions(values, io.env);
    const { migrate, migrateDistributed } = await import('../store/postgres/postgres.ts');
    const distributed = values.distributed ? await migrateDistributed(options) : await migrate(options);
    printText(
      io.stdout,
      `the tables in the schema ${options.schema} are ready on ${describeUrl(options.url)}`,
    );
    if (distributed) {
      const { tables, workers } = distributed;
      const what =
        tables.length === 0 ? 'the tables were distributed already' : `distributed ${tables.join(', ')}`;
      printText(io.stdout, `${what}; workers: ${workers.join(', ')}`);
    }
    return 0;
  },
});

export const copyCommand = command({
  examples: [
    'wafstat copy --data ./data --project shop --to postgres --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat copy --data ./data --project shop --to lmdb --postgres-url postgres://wafstat@127.0.0.1/wafstat',
  ],
  options: {
    data: required(DIRECTORY),
    project: required(PROJECT),
    to: required(
      option(
        '--to <lmdb|postgres>',
        'store to copy the project to, from the other one; lmdb is that of the data directory',
        oneOf('lmdb', 'postgres'),
      ),
    ),
    ...STORE_IN_POSTGRES,
  },
  run: ({ data, project: name, to: target, ...values }, _operands, io) =>
    withInstallation({ store: 'lmdb', data, eventsMax: 0 }, io, async ({ identity, store: embedded }) => {
      const { id: project } = identity.administration.projectNamed(name);
      const postgres = await openStore({ ...values, store: 'postgres', eventsMax: 0 }, '', io);
      const [from, to] = target === 'postgres' ? [embedded, postgres] : [postgres, embedded];
      try {
        const bar = progressBar(io, 'Copying', null, (counts) => `${counts} counts`);
        await copyProject(from, to, project, bar.advance);
        bar.end();
        const now = io.now();
        const firsts = (await from.sources(project)).flatMap(({ first_seen }) => first_seen ?? []);
        const range = { from: firsts.reduce((a, b) => Math.min(a, b), now), to: now + 2 * DAY_MS };
        const found = await differences(from, to, project, range);
        for (const difference of found) warn(io, difference);
        if (found.length > 0) {
          throw new UserError(
            'verification failed: the stores differ. Was data ingested during the copy, or was the target not empty?',
          );
        }
        const [requests, attacks] = await to.count({
          project,
          edges: [range.from, range.to],
          rows: 'timeline',
        });
        printText(
          io.stdout,
          `copied and verified: both stores have ${requests[0]} requests and ${attacks[0]} attacks, and the same top lists and kept attacks`,
        );
        if (requests[0] === 0 && attacks[0] === 0) {
          warn(
            io,
            `the project ${name} has no requests and no attacks in the store ${target === 'lmdb' ? 'postgres' : 'lmdb'}. ` +
              'Is it the right project, and the right direction (--to)?',
          );
        }
        return 0;
      } catch (error) {
        if (!(error instanceof CopyConflict)) throw error;
        throw new UserError(
          `nothing was copied: ${error.message}. The target must not have statistics of this project from elsewhere`,
        );
      } finally {
        await postgres.close();
      }
    }),
});

export const copyIdentityCommand = command({
  examples: [
    'wafstat copy-identity --data ./data --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat copy --data ./data --project shop --to postgres --postgres-url postgres://wafstat@127.0.0.1/wafstat',
  ],
  options: { data: required(DIRECTORY), ...STORE_IN_POSTGRES },
  async run({ data, ...target }, _operands, io) {
    const counts = await copyIdentity(data, target, io).catch((error) => {
      if (!(error instanceof AlreadyInitialised)) throw error;
      throw new UserError(
        `nothing was copied: ${describePostgres(target)} already has a wafstat installation`,
      );
    });
    const { domain, project, user, key } = counts;
    printText(
      io.stdout,
      `copied and verified: ${domain} domains, ${project} projects, ${user} users and ${key} access keys`,
    );
    return 0;
  },
});
