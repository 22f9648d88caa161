import type { Mutant } from './mutant.ts';

/** The simulation finds each of them within a minute. */
const tests = [{ project: 'blackbox', file: 'test/simulation/simulation.test.ts' }] as const;

/** Defects that earlier releases had, reintroduced. */
export const KNOWN_DEFECTS: readonly Mutant[] = [
  {
    name: 'rotation-newest-first',
    file: 'packages/server/src/ingest/rotated-files.ts',
    from: '.sort(oldestFirst)',
    to: '.sort((a, b) => oldestFirst(b, a))',
    tests,
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
    tests,
  },
  {
    name: 'batch-id-unchecked',
    file: 'packages/server/src/store/decide.ts',
    from: 'if (id !== undefined && this.#has(id)) {',
    to: 'if (id !== undefined && link !== undefined && this.#has(id)) {',
    tests,
  },
  {
    name: 'horizon-untrusted-clock',
    file: 'packages/server/src/store/retention.ts',
    from: '    if (this.#isDoubtful) {\n',
    to: '    if (this.#isDoubtful && now < 0) {\n',
    tests,
  },
  {
    name: 'refilled-file-twice',
    file: 'packages/server/src/ingest/tail.ts',
    from: 'const isSame = hasSample(this.#handle.fd, sampleOf(start, seen), this.#options.fs);',
    to: 'const isSame = true;',
    tests,
  },
];
