/** Commands for stores outside of the data directory: PostgreSQL and ClickHouse. */
import {
  CLICKHOUSE_OPTIONS,
  DATA,
  DATA_REQUIRED,
  DIRECTORY,
  POSTGRES_OPTIONS,
  STORE_OPTIONS,
} from '../config.ts';
import { AlreadyInitialised } from '../identity/errors.ts';
import { describeUrl } from '../postgres/url.ts';
import { CopyConflict, copyProject, differences } from '../store/copy.ts';
import { command, printLine, progressBar, UserError } from './command.ts';
import {
  clickhouseOptions,
  copyIdentity,
  describePostgres,
  openStore,
  postgresOptions,
  withInstallation,
} from './installation.ts';
import { nameOf, oneOf, option, PROJECT, required } from './options.ts';

const DAY_MS = 86_400_000;

export const migrateCommand = command({
  name: 'migrate',
  description: 'create or upgrade the tables of the PostgreSQL or ClickHouse store; can be repeated',
  examples: [
    'wafstat migrate --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat migrate --postgres-url postgres://wafstat@127.0.0.1/wafstat --clickhouse-url http://127.0.0.1:8123',
  ],
  options: { ...POSTGRES_OPTIONS, ...CLICKHOUSE_OPTIONS },
  check: (_values, source) =>
    source('postgresUrl') === undefined ? [`${nameOf(POSTGRES_OPTIONS.postgresUrl)} is required`] : [],
  async run(values, _operands, io) {
    const { postgresUrl, clickhouseUrl, clickhouseDatabase } = values;
    let { schema } = postgresOptions(values, io.env);
    if (clickhouseUrl) {
      const { migrate } = await import('../store/clickhouse/clickhouse.ts');
      const options = clickhouseOptions(values, io.env);
      await migrate(options);
      schema = options.postgres.schema;
      const servers = clickhouseUrl.join(', ');
      printLine(io.stdout, `the tables in the database ${clickhouseDatabase} are ready on ${servers}`);
    } else {
      const { migrate } = await import('../store/postgres/postgres.ts');
      await migrate(postgresOptions(values, io.env));
    }
    const server = postgresUrl && describeUrl(postgresUrl);
    printLine(io.stdout, `the tables in the schema ${schema} are ready on ${server}`);
    return 0;
  },
});

const STORES = ['lmdb', 'postgres', 'clickhouse'] as const;
const { store: _, ...SERVER_STORE_OPTIONS } = STORE_OPTIONS;

export const copyCommand = command({
  name: 'copy',
  description:
    'copy a project between two stores; includes its top lists and the read positions of its logs; ' +
    'verifies the copy; stop ingest and all services on both stores first',
  examples: [
    'wafstat copy --data ./data --project shop --to postgres --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat copy --data ./data --project shop --from postgres --to lmdb --postgres-url postgres://wafstat@127.0.0.1/wafstat',
  ],
  options: {
    data: DATA,
    project: required(PROJECT),
    from: option(
      `--from <${STORES.join('|')}>`,
      'store to copy the project from [default: lmdb; with --to lmdb, the store whose URL is set]',
      oneOf(...STORES),
    ),
    to: required(option(`--to <${STORES.join('|')}>`, 'store to copy the project to', oneOf(...STORES))),
    ...SERVER_STORE_OPTIONS,
  },
  check: (values) => {
    const [from, to] = [sourceStore(values), values.to];
    const problems = from === to ? [`--from and --to are the same store: ${from}`] : [];
    if (values.data === undefined && [from, to].includes('lmdb')) problems.push(DATA_REQUIRED);
    const usesClickHouse = from === 'clickhouse' || to === 'clickhouse';
    const usesPostgres = usesClickHouse || from === 'postgres' || to === 'postgres';
    for (const [isUsed, url] of [
      [usesPostgres, 'postgresUrl'],
      [usesClickHouse, 'clickhouseUrl'],
    ] as const) {
      if (isUsed && values[url] === undefined) problems.push(`${nameOf(STORE_OPTIONS[url])} is required`);
    }
    return problems;
  },
  run: ({ data, project: name, ...values }, _operands, io) => {
    const location =
      data === undefined ? { ...values, store: values.to } : ({ store: 'lmdb', data } as const);
    return withInstallation(location, io, async ({ identity, store: opened }) => {
      const { id: project } = identity.administration.projectNamed(name);
      const open = async (store: (typeof STORES)[number]) =>
        store === location.store ? opened : openStore({ ...values, store }, '', io);
      const from = await open(sourceStore(values));
      const to = await open(values.to);
      try {
        const bar = progressBar(io, 'Copying', null, (counts) => `${counts} counts`);
        await copyProject(from, to, project, bar.advance);
        bar.end();
        const now = io.now();
        const firsts = (await from.sources(project)).flatMap(({ first_seen }) => first_seen ?? []);
        const range = { from: firsts.reduce((a, b) => Math.min(a, b), now), to: now + 2 * DAY_MS };
        const found = await differences(from, to, project, range);
        for (const difference of found) printLine(io.stderr, `wafstat: ${difference}`);
        if (found.length > 0) {
          throw new UserError(
            'verification failed: the stores differ. Was data ingested during the copy, or was the target not empty?',
          );
        }
        const { requests, attacks } = await to.series({ project, edges: [range.from, range.to] });
        printLine(
          io.stdout,
          `copied and verified: both stores have ${requests[0]} requests and ${attacks[0]} attacks, and the same top lists`,
        );
        if (requests[0] === 0 && attacks[0] === 0) {
          printLine(
            io.stderr,
            `wafstat: the project ${name} has no requests and no attacks in the store ${sourceStore(values)}. ` +
              'Is it the right project, and the right store (--from)?',
          );
        }
        return 0;
      } catch (error) {
        if (!(error instanceof CopyConflict)) throw error;
        throw new UserError(
          `nothing was copied: ${error.message}. The target must not have statistics of this project from elsewhere`,
        );
      } finally {
        for (const store of [from, to]) if (store !== opened) await store.close();
      }
    });
  },
});

export const copyIdentityCommand = command({
  name: 'copy-identity',
  description:
    'copy domains, projects, users and access keys from a data directory into PostgreSQL; keeps IDs, passwords and keys; ' +
    'verifies the copy; stop the service first',
  examples: [
    'wafstat copy-identity --data ./data --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat copy --data ./data --project shop --to postgres --postgres-url postgres://wafstat@127.0.0.1/wafstat',
  ],
  options: { data: required(DIRECTORY), ...POSTGRES_OPTIONS, postgresMigrate: STORE_OPTIONS.postgresMigrate },
  check: ({ postgresUrl }) =>
    postgresUrl === undefined ? [`${nameOf(POSTGRES_OPTIONS.postgresUrl)} is required`] : [],
  async run({ data, ...target }, _operands, io) {
    const counts = await copyIdentity(data, target, io).catch((error) => {
      if (!(error instanceof AlreadyInitialised)) throw error;
      throw new UserError(
        `nothing was copied: ${describePostgres(target)} already has a wafstat installation`,
      );
    });
    const { domain, project, user, key } = counts;
    printLine(
      io.stdout,
      `copied and verified: ${domain} domains, ${project} projects, ${user} users and ${key} access keys`,
    );
    return 0;
  },
});

function sourceStore(values: {
  from?: (typeof STORES)[number] | undefined;
  to?: string | undefined;
  clickhouseUrl?: unknown;
}): (typeof STORES)[number] {
  if (values.from !== undefined) return values.from;
  if (values.to !== 'lmdb') return 'lmdb';
  return values.clickhouseUrl === undefined ? 'postgres' : 'clickhouse';
}
