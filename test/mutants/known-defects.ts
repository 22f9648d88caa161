import { type Mutant, unit } from './mutant.ts';

/** Defects that earlier releases had, reintroduced. */
export const KNOWN_DEFECTS: readonly Mutant[] = [
  {
    name: 'rotation-newest-first',
    file: 'packages/server/src/ingest/rotated-files.ts',
    from: '.sort(oldestFirst)',
    to: '.sort((a, b) => oldestFirst(b, a))',
    tests: [unit('ingest/rotated-files.test.ts')],
  },
  {
    name: 'checkpoint-apart',
    file: 'packages/server/src/ingest/pipeline.ts',
    from: `    const appended = await this.#store.append({
      ...batch,
      source,
      events,
`,
    to: `    const isApart = batch.link !== undefined;
    if (isApart) await this.#store.append({ project: batch.project, source, events, dropped: {} });
    const appended = await this.#store.append({
      ...batch,
      source,
      events: isApart ? [] : events,
`,
    tests: [unit('ingest/follow.test.ts', 'grows all the time')],
  },
  {
    name: 'batch-id-unchecked',
    file: 'packages/server/src/store/decide.ts',
    from: 'if (id !== undefined && this.#has(id)) {',
    to: 'if (id !== undefined && link !== undefined && this.#has(id)) {',
    tests: [unit('store/oracle.test.ts', 'a batch id')],
  },
  {
    name: 'horizon-untrusted-clock',
    file: 'packages/server/src/store/retention.ts',
    from: '    if (this.#isDoubtful) {\n',
    to: '    if (this.#isDoubtful && now < 0) {\n',
    tests: [unit('store/retention.test.ts')],
  },
  {
    name: 'refilled-file-twice',
    file: 'packages/server/src/ingest/plain-file.ts',
    from: 'return fillSync(fd, offset, now, fs) && now.equals(bytes);',
    to: 'return true;',
    tests: [unit('ingest/follow.test.ts', 'truncated and written again during a read')],
  },
];
