/** `demo`: a server with generated traffic. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { DEFAULT_NAMES, DIRECTORY, type ListenAddress, SERVER_OPTIONS } from '../config.ts';
import { generatePassword } from '../identity/secrets.ts';
import { PageCounts } from '../ingest/page-counts.ts';
import { retainFor } from '../store/retention.ts';
import type { Store } from '../store/store.ts';
import { isInUse } from './backup.ts';
import { command, type Io, printLine, progressBar, UserError, warn } from './command.ts';
import { fileExists, isInitialised, statisticsFile } from './data-directory.ts';
import { initialise } from './init.ts';
import { type Installation, withInstallation } from './installation.ts';
import { checkCanListen } from './listeners.ts';
import { readOptions, required } from './options.ts';
import { errorPath, SAMPLE_HOSTS, sampleEvents } from './sample-traffic.ts';
import { startServer, whenAborted } from './serve.ts';
import { quoted } from './shown-options.ts';
import { printListening } from './workers.ts';

const SOURCE = { name: 'sample traffic', format: 'events' };
const DAY_S = 86_400;
const HISTORY_DAYS = 30;
/** About 12,000 events. Ctrl-C waits for the end of a batch; larger ones took no less time in all. */
const BATCH_S = DAY_S / 2;
/** How many ports to try from the default port on. */
const PORTS_MAX = 20;

const { listen, tlsCert, tlsKey, insecureHttp, publicUrl, region, alertAllowPrivate } = SERVER_OPTIONS;

export const demoCommand = command({
  examples: ['wafstat demo --data ./demo-data'],
  options: {
    data: required(DIRECTORY),
    ...{ listen, tlsCert, tlsKey, insecureHttp, publicUrl, region, alertAllowPrivate },
  },
  async run({ data, ...values }, _operands, io, source, given) {
    const isNew = !isInitialised(data);
    if (!isNew) await checkIsFree(data);
    const isDefaultAddress = source('listen') === undefined;
    // Checked before filling, which takes a while.
    if (!isDefaultAddress) await checkCanListen('--listen', values.listen);
    const { tlsCert, tlsKey } = values;
    if (isNew)
      await initialise({ store: 'lmdb', data, tlsCert, tlsKey }, DEFAULT_NAMES, generatePassword(), io);
    return withInstallation({ store: 'lmdb', data }, io, async (installation) => {
      const project = installation.identity.administration.projectNamed(DEFAULT_NAMES.project).id;
      if (!isNew) await checkIsDemo(data, installation.store, project);
      if (isNew) await addSampleAnnotations(installation, project, io.now());
      const fill = await openSampleTraffic(installation.store, project, io);
      await fill();
      if (io.stop.aborted) return 0;
      // Chosen after filling: another process may have taken a port meanwhile.
      if (isDefaultAddress) values.listen = await freeAddress(values.listen, io);
      const defaults = readOptions(SERVER_OPTIONS, () => undefined, {});
      const server = await startServer(
        { ...installation, given },
        { ...defaults, logLevel: 'warn', ...values },
        io,
      );
      const location = `--data ${quoted(data)}`;
      const kept = { eventsMs: defaults.retention, topListsMs: defaults.detailsRetention, location };
      const retention = retainFor(installation.store, kept, io.now, server.log);
      const welcome = await prepareWelcome(installation, project, server.address);
      if (!io.stop.aborted) {
        printListening(io, server.address, null);
        for (const line of welcome) printLine(io.stdout, line);
      }
      const timer = setInterval(() => void fill().catch((error) => server.log.error(error)), 1_000);
      await whenAborted(io.stop);
      clearInterval(timer);
      await fill();
      await Promise.all([retention.stop(), server.close()]);
      return 0;
    });
  },
});

const SAMPLE_ANNOTATIONS = [
  { hoursAgo: 54, text: 'Core Rule Set 4.10', link: 'https://coreruleset.org/' },
  { hoursAgo: 7, text: 'Release 4.2', link: null },
];

async function addSampleAnnotations({ identity }: Installation, project: string, now: number): Promise<void> {
  for (const { hoursAgo, ...annotation } of SAMPLE_ANNOTATIONS)
    await identity.administration.addAnnotation(project, { ...annotation, time: now - hoursAgo * 3_600_000 });
}

/** Another demo would lose its password, and both would add the same traffic. */
async function checkIsFree(data: string): Promise<void> {
  const file = statisticsFile(data);
  if (!fileExists(file) || !(await isInUse(file))) return;
  throw new UserError(
    `another process is using ${data}, perhaps a running demo: stop it, or use another directory`,
  );
}

/**
 * Generated events must not mix with real ones. Users may rename and delete hosts of the demo, so its source decides; a demo
 * that was stopped before its first batch has only its hosts.
 */
export async function checkIsDemo(data: string, store: Store, project: string): Promise<void> {
  if ((await store.sources(project)).some(({ name }) => name === SOURCE.name)) return;
  const names = new Set((await store.hosts(project)).map(({ hostname }) => hostname));
  if (SAMPLE_HOSTS.every(({ hostname }) => names.has(hostname))) return;
  throw new UserError(`${data} was not created by the demo: use another directory with --data`);
}

/** The first address that is free, from the given port on. */
export async function freeAddress(
  { host, port }: ListenAddress,
  io: Pick<Io, 'stderr' | 'env'>,
): Promise<ListenAddress> {
  for (let candidate = port; ; candidate++) {
    try {
      await checkCanListen('--listen', { host, port: candidate });
      if (candidate !== port) warn(io, `port ${port} is in use; using port ${candidate} instead`);
      return { host, port: candidate };
    } catch (error) {
      if (!(error instanceof UserError) || candidate - port >= PORTS_MAX) throw error;
    }
  }
}

/** Resolves to a function that stores the events that are missing up to the current second, 30 days of them at first. */
export async function openSampleTraffic(
  store: Store,
  project: string,
  io: Pick<Io, 'stderr' | 'now' | 'stop'>,
) {
  const hostIds: string[] = [];
  for (const { hostname } of SAMPLE_HOSTS) {
    const added = await store.addHost({ project, hostname, limit: 1_000 });
    if ('host' in added) hostIds.push(added.host.id);
  }
  let next = await firstMissingSecond(store, project, io.now());
  let filling = Promise.resolve();

  async function fillGap(): Promise<void> {
    if (io.stop.aborted) return;
    const end = Math.floor(io.now() / 1_000);
    const days = (seconds: number) => `${Math.round(seconds / DAY_S)} days`;
    const isLong = end - next > DAY_S;
    const label = 'Generating sample traffic';
    if (isLong && !io.stderr.isTTY)
      printLine(io.stderr, `${label}: ${days(end - next)}, in a few seconds ...`);
    const bar = isLong ? progressBar(io, label, end - next, days) : null;
    while (next < end && !io.stop.aborted) {
      const batchEnd = Math.min(end, next + BATCH_S);
      const events = sampleEvents(next, batchEnd, hostIds);
      const counts = new PageCounts();
      for (const event of events) {
        const page = errorPath(event);
        const { time, count, status = 0, hostId } = event;
        if (page !== undefined) counts.add({ time, count, status, page, hostId: hostId ?? undefined });
      }
      const pages = counts.pages(() => null);
      if (events.length > 0) await store.append({ project, source: SOURCE, events, pages, dropped: {} });
      bar?.advance(batchEnd - next);
      next = batchEnd;
      // Lets a signal arrive.
      await nextTurn();
    }
    bar?.end();
  }

  return () => {
    filling = filling.then(fillGap);
    return filling;
  };
}

/** Batches contain whole seconds in order, so the latest event shows how far an earlier run came. */
async function firstMissingSecond(store: Store, project: string, now: number): Promise<number> {
  const source = (await store.sources(project)).find(({ name }) => name === SOURCE.name);
  const start = Math.floor(now / 1_000) - HISTORY_DAYS * DAY_S;
  return source?.last_seen ? Math.max(start, Math.floor(source.last_seen / 1_000) + 1) : start;
}

/** Sets a new password at each start, because nobody may remember the old one. */
async function prepareWelcome(
  { identity }: Installation,
  project: string,
  address: string,
): Promise<string[]> {
  const { authenticator, administration } = identity;
  const user = administration.userNamed(DEFAULT_NAMES.user);
  const password = generatePassword();
  await administration.setPassword(user.id, password);
  const login = await authenticator.login(
    { user: { id: user.id }, password, scope: { project: { id: project } } },
    { address: '', via: 'api' },
  );
  if (typeof login === 'string') throw new Error(`the demo cannot log in: ${login}`);
  const curl = (path: string) =>
    `curl -H "X-Auth-Token: $TOKEN" "$URL/v1/$PROJECT/waf/event/${path}?recent=yesterday"`;
  return [
    '',
    `login    user ${DEFAULT_NAMES.user}, domain ${DEFAULT_NAMES.domain}, password ${password}`,
    `project  ${project}`,
    `console  ${address}/console/`,
    '',
    'Query the API from another terminal: attacks of yesterday by category, then requests and attacks over time.',
    '',
    `URL=${address}`,
    `PROJECT=${project}`,
    `TOKEN=${login.text}`,
    curl('attack/type'),
    curl('timeline'),
    '',
    'New events keep arriving. Press Ctrl-C to stop the demo.',
  ];
}
