import { CopyConflict, copyProject, differences } from '../store/copy.ts';
import { command, printLine, UserError } from './command.ts';
import { withInstallation } from './data-folder.ts';
import { openStore, STORE_SETTINGS } from './store.ts';

const DAY_MS = 86_400_000;

export const copyCommand = command({
  name: 'copy',
  about:
    'copy a project from the embedded store to ClickHouse or back, with all that is remembered of its logs, and check ' +
    'that both answer the same; count nothing meanwhile',
  settings: ['data', 'project', 'copyTo', ...STORE_SETTINGS.filter((name) => name !== 'store')],
  required: ['data', 'project', 'copyTo', 'clickhouseUrl'],
  run: ({ data, project: name, copyTo, ...settings }, _operands, io) =>
    withInstallation(data, io, { store: 'lmdb' }, async ({ identity, store: embedded }) => {
      const { id: project } = identity.administration.project(name);
      const clickhouse = await openStore({ ...settings, store: 'clickhouse' }, '', io.now);
      const [from, to] = copyTo === 'clickhouse' ? [embedded, clickhouse] : [clickhouse, embedded];
      try {
        let copied = 0;
        await copyProject(from, to, project, (events) => {
          copied += events;
          if (io.stderr.isTTY) io.stderr.write(`\r${copied} counts`);
        });
        if (io.stderr.isTTY) io.stderr.write('\r');
        const now = io.now();
        // All that was ever counted: what is too old by now is in neither.
        const firsts = (await from.sources(project)).flatMap(({ first_seen }) => first_seen ?? []);
        const range = { from: firsts.reduce((a, b) => Math.min(a, b), now), to: now + 2 * DAY_MS };
        const found = await differences(from, to, project, range);
        for (const one of found) printLine(io.stderr, `wafstat: ${one}`);
        if (found.length > 0) {
          throw new UserError(
            'the two stores do not answer the same: was something counted meanwhile, or was there something before?',
          );
        }
        const { requests, attacks } = await to.series({ project, edges: [range.from, range.to] });
        printLine(
          io.stdout,
          `copied: both stores answer the same, ${requests[0]} requests and ${attacks[0]} attacks in all`,
        );
        return 0;
      } catch (error) {
        if (!(error instanceof CopyConflict)) throw error;
        throw new UserError(`nothing was copied: ${error.message}. A copy must not be added to them`);
      } finally {
        await clickhouse.close();
      }
    }),
});
