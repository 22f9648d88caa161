/** Commands for the ClickHouse store. */
import { CLICKHOUSE_OPTIONS, DATA, STORE_OPTIONS } from '../config.ts';
import { CopyConflict, copyProject, differences } from '../store/copy.ts';
import { command, printLine, progressBar, UserError } from './command.ts';
import { clickhouseOptions, openStore, withInstallation } from './data-directory.ts';
import { oneOf, option, PROJECT, required } from './options.ts';

const DAY_MS = 86_400_000;

export const migrateCommand = command({
  name: 'migrate',
  description: 'create or upgrade the tables of the ClickHouse store; can be repeated',
  options: { ...CLICKHOUSE_OPTIONS, clickhouseUrl: required(CLICKHOUSE_OPTIONS.clickhouseUrl) },
  async run(values, _operands, io) {
    const { migrate } = await import('../store/clickhouse/clickhouse.ts');
    await migrate(clickhouseOptions(values));
    printLine(
      io.stdout,
      `the tables in the database ${values.clickhouseDatabase} are ready on ${values.clickhouseUrl.join(', ')}`,
    );
    return 0;
  },
});

export const copyCommand = command({
  name: 'copy',
  description:
    'copy a project between the embedded store and ClickHouse; includes the read positions of its logs; ' +
    'verifies the copy; stop ingest first',
  examples: [
    'wafstat copy --data ./data --project shop --to clickhouse --clickhouse-url http://127.0.0.1:8123',
  ],
  options: {
    data: required(DATA),
    project: required(PROJECT),
    to: required(
      option('--to <lmdb|clickhouse>', 'store to copy the project to', oneOf('lmdb', 'clickhouse')),
    ),
    ...CLICKHOUSE_OPTIONS,
    clickhouseUrl: required(CLICKHOUSE_OPTIONS.clickhouseUrl),
    clickhouseMigrate: STORE_OPTIONS.clickhouseMigrate,
  },
  run: ({ data, project: name, to: target, ...values }, _operands, io) =>
    withInstallation(data, io, { store: 'lmdb' }, async ({ identity, store: embedded }) => {
      const { id: project } = identity.administration.project(name);
      const clickhouse = await openStore({ ...values, store: 'clickhouse' }, '', io.now);
      const [from, to] = target === 'clickhouse' ? [embedded, clickhouse] : [clickhouse, embedded];
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
          `copied and verified: both stores have ${requests[0]} requests and ${attacks[0]} attacks`,
        );
        return 0;
      } catch (error) {
        if (!(error instanceof CopyConflict)) throw error;
        throw new UserError(
          `nothing was copied: ${error.message}. The target must not have statistics of this project from elsewhere`,
        );
      } finally {
        await clickhouse.close();
      }
    }),
});
