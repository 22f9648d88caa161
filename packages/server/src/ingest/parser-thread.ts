/** The program of a thread of parser-threads.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import { ChunkParser, type ChunkTask } from './chunk-parser.ts';
import { LastId, type ThreadData } from './parser-threads.ts';

const { setup, lastId } = workerData as ThreadData;
const parser = new ChunkParser(setup);
const chain = new LastId(lastId);

parentPort?.on('message', (task: ChunkTask & { number: number }) => {
  const waitForBefore = () => chain.waitFor(task.number - 1);
  const parsed = parser.parse(task, () => {
    const before = waitForBefore();
    return task.after ?? before;
  });
  // After a change, the chunks under way are read in vain, but must not wait forever.
  chain.set(task.number, parsed === null ? waitForBefore() : parsed.digests.id);
  // Records are copied: once a thread gives an array away, V8 checks all arrays for it at every access.
  if (parsed === null) parentPort?.postMessage('changed');
  else parentPort?.postMessage(parsed);
});
parentPort?.postMessage('ready');
