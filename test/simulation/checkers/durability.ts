/** What a store or a process reports as counted is visible to other processes. */
import { type Checked, type Checker, CheckFailed } from './checker.ts';

export function checkDurability({ scheduler, reader, project }: Checked): Checker {
  const reported = new Map<string, number>();
  return {
    async acknowledged(by, source, records) {
      const key = `${by} ${source}`;
      const sum = (reported.get(key) ?? 0) + records;
      reported.set(key, sum);
      const sources = await scheduler.native(() => reader.sources(project));
      const events = sources.find(({ name }) => name === source)?.events ?? 0;
      if (events < sum)
        throw new CheckFailed(
          `${by} has reported ${sum} records of ${source}, but only ${events} are stored`,
        );
    },
  };
}
