import type { Event } from '../event.ts';
import type { Store } from '../store/store.ts';
import { command, type Io, printLine } from './command.ts';
import { type Installation, isInitialised, withInstallation } from './data-folder.ts';
import { initialise, randomPassword } from './init.ts';
import { SAMPLE_HOSTS, sampleSecond } from './sample-traffic.ts';
import { aborted, startServer } from './serve.ts';
import { printListening } from './workers.ts';

const NAMES = { domain: 'default', project: 'default', user: 'admin' };
const SOURCE = { name: 'sample traffic', format: 'events' };
const HISTORY_S = 30 * 86_400;
const QUIET = { request: true, attack: null, count: 1 } as const;
/** A day in a batch: some 25,000 events. */
const BATCH_S = 86_400;

/** Those that make a difference to someone who looks around. */
const DEMO_SETTINGS = ['listen', 'tlsCert', 'tlsKey', 'insecureHttp', 'publicUrl', 'region'] as const;
const FIXED = {
  retention: 180 * 86_400_000,
  hostsMax: 1_000,
  sourcesMax: 1_000,
  bodyLimit: 12 * 1_048_576,
  rateLimit: 0,
  maxConnections: 10_000,
  drainDelay: 0,
  logLevel: 'warn',
} as const;

export const demoCommand = command({
  name: 'demo',
  about: 'serve 30 days of made-up traffic on six hosts that goes on live',
  settings: ['data', ...DEMO_SETTINGS],
  required: ['data'],
  async run({ data, ...settings }, _operands, io) {
    if (!isInitialised(data)) await initialise(data, NAMES, randomPassword(), io);
    return withInstallation(data, io, { store: 'lmdb' }, async (installation) => {
      const traffic = await sampleTraffic(installation, io);
      await traffic.fill();
      const server = await startServer(
        installation,
        { ...settings, ...FIXED, healthListen: undefined, trustProxy: undefined, categories: undefined },
        io,
      );
      await printWelcome(installation, traffic.project, server.address, io);
      const timer = setInterval(() => void traffic.fill().catch((error) => server.log.error(error)), 1_000);
      await aborted(io.stop);
      clearInterval(timer);
      await traffic.fill();
      await server.close();
      return 0;
    });
  },
});

async function sampleTraffic({ identity, store }: Installation, io: Io) {
  const project = identity.administration.project(NAMES.project).id;
  const hostIds: string[] = [];
  for (const { hostname } of SAMPLE_HOSTS) {
    const added = await store.addHost({ project, hostname, limit: 1_000 });
    if ('host' in added) hostIds.push(added.host.id);
  }
  let next = await firstMissingSecond(store, project, io.now());
  let filling = Promise.resolve();

  /** Up to the last whole second; what an earlier run has stored is not made again. */
  async function fillGap(): Promise<void> {
    const end = Math.floor(io.now() / 1_000);
    while (next < end && !io.stop.aborted) {
      const stop = Math.min(end, next + BATCH_S);
      const events: Event[] = [];
      for (let second = next; second < stop; second++) events.push(...sampleSecond(second, hostIds));
      // Quiet seconds are the rule at night; whoever looks on should see something happen in each.
      if (events.length === 0)
        events.push({ ...QUIET, time: next * 1_000 + 500, hostId: hostIds[0] ?? null });
      if (events.length > 0) await store.append({ project, source: SOURCE, events, dropped: {} });
      next = stop;
    }
  }

  return {
    project,
    fill(): Promise<void> {
      filling = filling.then(fillGap);
      return filling;
    },
  };
}

/** Batches go in by whole seconds and in order, so the latest event tells how far an earlier run came. */
async function firstMissingSecond(store: Store, project: string, now: number): Promise<number> {
  const source = (await store.sources(project)).find(({ name }) => name === SOURCE.name);
  const start = Math.floor(now / 1_000) - HISTORY_S;
  return source?.last_seen ? Math.max(start, Math.floor(source.last_seen / 1_000) + 1) : start;
}

/** The password is made anew at each start: the old one is known to nobody who did not write it down. */
async function printWelcome(
  { identity }: Installation,
  project: string,
  address: string,
  io: Io,
): Promise<void> {
  const { authenticator, administration } = identity;
  const user = administration.user(NAMES.user);
  const password = randomPassword();
  await administration.setPassword(user.id, password);
  const login = await authenticator.login(
    { user: { id: user.id }, password, scope: { project: { id: project } } },
    { address: '', via: 'api' },
  );
  if (typeof login === 'string') throw new Error(`the demo cannot log in: ${login}`);
  const now = io.now();
  const day = `from=${now - 86_400_000}&to=${now}`;
  const curl = (path: string) =>
    `curl -H 'X-Auth-Token: ${login.text}' '${address}/v1/${project}/waf/event/${path}'`;
  const lines = [
    '',
    `login    user ${NAMES.user}, domain ${NAMES.domain}, password ${password}`,
    `project  ${project}`,
    '',
    'Requests and attacks of the last 24 hours, minute by minute:',
    '',
    curl(`timeline?${day}`),
    '',
    'The attacks by category:',
    '',
    curl(`attack/type?${day}`),
    '',
    'New events come in every second. Ctrl-C stops the demo.',
  ];
  printListening(io, address);
  for (const line of lines) printLine(io.stdout, line);
}
