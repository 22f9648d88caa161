import { command, printLine } from './command.ts';
import { CLICKHOUSE_SETTINGS, clickhouseOptions } from './store.ts';

export const migrateCommand = command({
  name: 'migrate',
  about: 'make the tables of the ClickHouse store, or bring them up to this release; can be repeated',
  settings: CLICKHOUSE_SETTINGS,
  required: ['clickhouseUrl'],
  async run(settings, _operands, io) {
    const { migrate } = await import('../store/clickhouse/clickhouse.ts');
    await migrate(clickhouseOptions(settings));
    printLine(
      io.stdout,
      `the tables in the database ${settings.clickhouseDatabase} are ready on ${settings.clickhouseUrl.join(', ')}`,
    );
    return 0;
  },
});
