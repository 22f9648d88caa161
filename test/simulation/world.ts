/** Everything that happens around the processes: writers, rotation, kills, wrong clocks, failing disks, pushes. */
import { rmSync } from 'node:fs';
import { lmdbStore } from '../../packages/server/src/store/lmdb/lmdb.ts';
import type { Appended, Batch, Retention, Store } from '../../packages/server/src/store/store.ts';
import { checkAttacks } from './checkers/attacks.ts';
import { checkBatchIds } from './checkers/batch-ids.ts';
import type { Checked, Checker } from './checkers/checker.ts';
import { checkCounters } from './checkers/counters.ts';
import { checkDurability } from './checkers/durability.ts';
import { checkHorizon } from './checkers/horizon.ts';
import { checkLines } from './checkers/lines.ts';
import { Disk } from './disk.ts';
import { Ledger, type Line } from './ledger.ts';
import { Log } from './log.ts';
import { type Environment, follow, ingest, Service, type SimulatedProcess } from './processes.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, Scheduler, type Task } from './scheduler.ts';

const START = Date.UTC(2026, 0, 1);
const PROJECT = 'p';
/** After so many events, everything may settle, and all invariants are checked. */
const EVENTS_PER_CHECK = 150;
/** Longer than `follow` sleeps, and than it waits for the last lines of a rotated file. */
const SETTLE_MS = 15 * MINUTE_MS;
/** How long something lasts before it looks whether the world wants to settle. */
const WAIT_STEP_MS = 10 * MINUTE_MS;
/** After a read of some bytes of a log, before the read of the rest. */
const ROTATION_DURING_READ_CHANCE = 0.05;
/** How often `follow` is stopped during two rotations, after a check. */
const PAUSE_CHANCE = 0.3;

/** A process that is started again when it has ended. */
interface Slot {
  start(): SimulatedProcess;
  running: SimulatedProcess;
  isDown: boolean;
}

export class World {
  readonly scheduler: Scheduler;
  readonly ledger: Ledger;
  readonly counts = { events: 0, kills: 0, rotations: 0, checks: 0, pushes: 0, clockJumps: 0 };
  readonly #storePath: string;
  readonly #disk: Disk;
  readonly #logs: Log[];
  readonly #slots: Slot[];
  readonly #environment: Environment;
  readonly #checkers: Checker[];
  readonly #reader: Store;
  readonly #warnings = new Map<string, string[]>();
  readonly #retentionMs: number;
  #retention: Retention = { horizon: 0, freedBefore: 0, newestEvent: null, note: null };
  #clockOffset = 0;
  #isSettling = false;
  #isOrderly = true;
  #rotatedAt = 0;
  #subtasks = 0;
  #isOver = false;

  constructor(seed: number, storePath: string, trace?: (line: string) => void) {
    this.scheduler = new Scheduler(seed, START, trace);
    const { random } = this.scheduler;
    this.#storePath = storePath;
    this.ledger = new Ledger(random, () => this.scheduler.now);
    this.#retentionMs = random.integer(6, 20) * DAY_MS;
    const now = () => this.scheduler.now + this.#clockOffset;
    this.#disk = new Disk(this.scheduler, now, (path) => this.#rotateDuringRead(path));
    this.#reader = this.#openStore();
    this.#environment = {
      scheduler: this.scheduler,
      disk: this.#disk,
      faults: { chance: 0, commitMsMax: 10 },
      project: PROJECT,
      retentionMs: this.#retentionMs,
      now,
      openStore: () => this.#openStore(),
      executed: (...call) => this.#executed(...call),
      acknowledged: (source, records) => this.#acknowledged('a process', source, records),
      warned: (source, message) => {
        this.scheduler.note(`warning: ${message}`);
        this.#warnings.set(source, [...(this.#warnings.get(source) ?? []), message]);
      },
      isHurried: () => this.#isSettling,
    };
    const checked: Checked = {
      ...this.#environment,
      ledger: this.ledger,
      reader: this.#reader,
      horizon: () => this.#retention,
      isOrderly: () =>
        this.#isOrderly &&
        this.#logs.every((log) => log.isQuiet) &&
        this.scheduler.now > this.#rotatedAt + 10 * MINUTE_MS,
      warnings: this.#warnings,
    };
    this.#checkers = [
      checkLines(checked),
      checkCounters(checked),
      checkAttacks(checked),
      checkBatchIds(checked),
      checkHorizon(checked),
      checkDurability(checked),
    ];
    this.#logs = ['access', 'error'].map((name) => {
      const file = {
        project: PROJECT,
        source: { name, format: 'events' },
        reader: { format: 'events' as const },
      };
      return new Log(`/log/${name}/${name}.log`, file, this.#disk, random, () => this.scheduler.now);
    });
    const groups = random.chance(0.5) ? [this.#logs] : this.#logs.map((log) => [log]);
    const starts = [
      () => new Service(this.#environment),
      ...groups.map((logs) => () => follow(this.#environment, logs)),
    ];
    this.#slots = starts.map((start) => ({ start, running: start(), isDown: false }));
  }

  /** Runs until the true time, or the number of events, is reached. Throws CheckFailed, or what the real code has thrown. */
  async run(untilMs: number, eventsMax = Number.POSITIVE_INFINITY): Promise<void> {
    const end = START + untilMs;
    this.#start('world', async (task) => {
      while (this.scheduler.now < end && this.counts.events < eventsMax) {
        await this.#happen(task);
        if (this.counts.events % EVENTS_PER_CHECK > 0) continue;
        await this.#settle(task);
        if (this.scheduler.random.chance(PAUSE_CHANCE)) await this.#pauseFollow(task);
      }
      await this.#settle(task);
      this.#isOver = true;
    });
    await this.scheduler.runUntil(() => this.#isOver);
  }

  get simulatedMs(): number {
    return this.scheduler.now - START;
  }

  async close(): Promise<void> {
    for (const { running } of this.#slots) await running.kill();
    await this.#reader.close();
    for (const path of [this.#storePath, `${this.#storePath}-lock`]) rmSync(path, { force: true });
  }

  #openStore(): Store {
    return lmdbStore(this.#storePath, () => this.scheduler.now + this.#clockOffset, {
      cacheBytes: 1_048_576,
    });
  }

  /** The world itself is a process that is never killed. */
  #start(name: string, work: (task: Task) => Promise<void>): void {
    this.scheduler.start(name, { isAlive: true }, work);
  }

  /** Something that takes a while, beside everything else. */
  #subtask(
    name: string,
    work: (wait: (label: string, ms: number) => Promise<void>) => Promise<unknown>,
  ): void {
    this.#subtasks++;
    this.#start(name, async (task) => {
      await work(async (label, ms) => {
        const end = this.scheduler.now + ms;
        do await this.scheduler.pause(task, label, Math.min(WAIT_STEP_MS, end - this.scheduler.now));
        while (this.scheduler.now < end && !(this.#isSettling && ms > WAIT_STEP_MS));
      });
      this.#subtasks--;
    });
  }

  async #happen(task: Task): Promise<void> {
    const { random } = this.scheduler;
    await this.scheduler.pause(task, 'waits', this.#gapMs());
    this.counts.events++;
    const weights = Object.values(EVENTS).reduce((sum, weight) => sum + weight, 0);
    let chosen = random.next() * weights;
    for (const [event, weight] of Object.entries(EVENTS)) {
      chosen -= weight;
      if (chosen > 0) continue;
      this.scheduler.note(`event ${this.counts.events}: ${event}`);
      if (!ORDERLY.includes(event)) this.#isOrderly = false;
      // The keys of EVENTS.
      await this.#perform(event as keyof typeof EVENTS);
      return;
    }
  }

  /** Many events come close together, so that they fall between two steps of a process. */
  #gapMs(): number {
    const { random } = this.scheduler;
    const chance = random.next();
    if (chance < 0.6) return random.integer(0, 50);
    return chance < 0.85 ? random.integer(0, MINUTE_MS) : random.integer(0, 2 * HOUR_MS);
  }

  async #perform(event: keyof typeof EVENTS): Promise<void> {
    const { random } = this.scheduler;
    const log = random.pick(this.#logs);
    const slot = random.pick(this.#slots);
    switch (event) {
      case 'lines':
        return this.#subtask('writer', (wait) =>
          log.write(() => this.#lines(log, random.integer(1, 6)), wait),
        );
      case 'rotation':
        return this.#subtask('rotation', (wait) => this.#rotate(log, wait));
      case 'kill':
        return this.#killLater(slot, slot.running);
      case 'restart':
        return this.#restart(slot);
      case 'push':
        return this.#push();
      case 'store trouble':
        return this.#storeTrouble();
      case 'disk trouble':
        this.#disk.isFailing = true;
        return this.#subtask('disk', async (wait) => {
          await wait('fails', random.integer(0, 10 * MINUTE_MS));
          this.#disk.isFailing = false;
        });
      case 'wrong clock':
        return this.#setClock(random.pick([-1, 1]) * random.integer(10 * DAY_MS, 400 * DAY_MS));
      case 'inexact clock':
        if (Math.abs(this.#clockOffset) < HOUR_MS) this.#clockOffset = random.integer(-50, 50) * MINUTE_MS;
        return;
      case 'ingest':
        // Copies that end inside a counted chunk are not recognized (docs/decisions/0003).
        return log.rotation.by === 'rename' ? this.#ingest(log) : undefined;
      case 'emptied log':
        return log.empty();
      case 'refilled log':
        return log.refill();
      case 'backup copy':
        return log.backUp();
      case 'removed file':
        return log.removeOldest();
      case 'horizon moved back':
        return this.#moveHorizonBack();
    }
  }

  async #rotate(log: Log, wait: (label: string, ms: number) => Promise<void>): Promise<void> {
    if (await log.rotate(wait, () => this.#lines(log, 5))) this.counts.rotations++;
    this.#rotatedAt = this.scheduler.now;
  }

  /** Some processes read only one part of the log before it is rotated. */
  #rotateDuringRead(path: string): void {
    const log = this.#logs.find((each) => each.path === path);
    if (!log || this.#isSettling || !this.scheduler.random.chance(ROTATION_DURING_READ_CHANCE)) return;
    this.#subtask('rotation', (wait) => this.#rotate(log, wait));
  }

  /** A log is rotated twice while no process follows it. Nothing else happens, so its files must be read oldest first. */
  async #pauseFollow(task: Task): Promise<void> {
    const { random } = this.scheduler;
    const wait = (label: string, ms: number) => this.scheduler.pause(task, label, ms);
    const slots = this.#slots.slice(1);
    for (const slot of slots) {
      slot.isDown = true;
      slot.running.terminate();
    }
    while (slots.some(({ running }) => running.isAlive)) await wait('stops', MINUTE_MS);
    for (const log of [...this.#logs, ...this.#logs]) {
      await log.write(() => this.#lines(log, random.integer(1, 6)), wait);
      await this.#rotate(log, wait);
    }
    await wait('is stopped', 2 * HOUR_MS);
    for (const slot of slots) {
      slot.running = slot.start();
      slot.isDown = false;
    }
  }

  #lines(log: Log, count: number): { line: Line; text: string }[] {
    return Array.from({ length: count }, () => {
      const { name } = log.ingest.source;
      return this.#line(name, log.isLocal ? this.#environment.now() : this.scheduler.now, log.padding);
    });
  }

  #line(source: string, now: number, padding = 0): { line: Line; text: string } {
    const { random } = this.scheduler;
    const chance = random.next();
    if (chance < 0.04) return this.ledger.write(source, now, 'dropped');
    const isUnsure = Math.abs(this.#clockOffset) > HOUR_MS;
    if (chance > 0.9) {
      const age = chance > 0.95 ? random.integer(0, this.#retentionMs * 1.2) : -random.integer(0, 2 * DAY_MS);
      const isInTime = age > -20 * HOUR_MS && age < this.#retentionMs - 3 * DAY_MS;
      return this.ledger.write(source, now - age, isInTime && !isUnsure ? 'counted' : 'either', padding);
    }
    return this.ledger.write(source, now, isUnsure ? 'either' : 'counted', padding);
  }

  #killLater(slot: Slot, process: SimulatedProcess): void {
    this.scheduler.killLater(process, this.scheduler.random.integer(0, 40), async () => {
      this.counts.kills++;
      await process.kill();
      if (slot.running === process && !slot.isDown) this.#startLater(slot);
    });
  }

  /** The next process may start before the one before it has ended. */
  #restart(slot: Slot): void {
    if (slot.isDown) return;
    slot.running.terminate();
    if (this.scheduler.random.chance(0.3)) {
      slot.running = slot.start();
      this.#isOrderly = false;
    } else this.#startLater(slot);
  }

  #startLater(slot: Slot): void {
    const { random } = this.scheduler;
    slot.isDown = true;
    const longest = random.pick([10_000, 10_000, 10_000, 3 * HOUR_MS, 3 * HOUR_MS, 3 * DAY_MS]);
    this.#subtask('operator', async (wait) => {
      await wait('starts a process', random.integer(0, longest));
      while (slot.running.isAlive) await wait('starts a process', MINUTE_MS);
      slot.running = slot.start();
      slot.isDown = false;
    });
  }

  #ingest(log: Log): void {
    const process = ingest(this.#environment, [...log.rotatedPaths(), log.path], log.ingest);
    this.#subtask('operator', async (wait) => {
      await wait('watches ingest', this.scheduler.random.integer(0, 100));
      if (this.scheduler.random.chance(0.5)) await process.kill();
    });
  }

  #push(): void {
    const { random } = this.scheduler;
    this.counts.pushes++;
    const isLarge = random.chance(0.02);
    const size = isLarge ? 30 : random.integer(1, 12);
    const lines = Array.from({ length: size }, () =>
      this.#line('push', this.scheduler.now, isLarge ? 60_000 : 0),
    );
    for (const { line } of lines) line.copies = 1;
    const key = random.chance(0.8) ? `push ${this.counts.pushes}` : undefined;
    this.#subtask('client', async (wait) => {
      for (;;) {
        const service = this.#slots[0]?.running as Service;
        const response = service.push({ lines: lines.map(({ text }) => text), key, source: 'push' });
        const ended: boolean[] = [];
        const end = (isCounted: boolean) => () => ended.push(isCounted);
        service.ended.then(end(false));
        response.then(end(true), end(false));
        while (ended.length === 0) await wait('waits for the response', MINUTE_MS);
        if (ended[0]) break;
        if (key === undefined) {
          for (const { line } of lines) if (line.expected === 'counted') line.expected = 'either';
          break;
        }
        await wait('sends it again', random.integer(0, 10 * MINUTE_MS));
      }
      for (const { line } of lines) if (line.expected !== 'counted' || line.isCounted) line.copies = 0;
    });
  }

  #storeTrouble(): void {
    const { faults } = this.#environment;
    const { random } = this.scheduler;
    faults.chance = random.pick([0.05, 0.3, 1]);
    faults.commitMsMax = random.pick([10, 1_000, 60_000]);
    this.#subtask('store', async (wait) => {
      await wait('is in trouble', random.integer(0, random.pick([10_000, 10 * MINUTE_MS])));
      faults.chance = 0;
      faults.commitMsMax = 10;
    });
  }

  /** Lines that are read meanwhile may be too old, or in the future. */
  #setClock(offset: number): void {
    if (Math.abs(this.#clockOffset) > HOUR_MS) return;
    const { random } = this.scheduler;
    this.counts.clockJumps++;
    this.#clockOffset = offset;
    this.#doubtOpenLines();
    this.#subtask('clock', async (wait) => {
      await wait('is wrong', random.integer(0, random.pick([HOUR_MS, 20 * HOUR_MS])));
      this.#doubtOpenLines();
      this.#clockOffset = 0;
    });
  }

  #doubtOpenLines(): void {
    for (const line of this.ledger.open)
      if (line.expected === 'counted' && !line.isCounted) line.expected = 'either';
  }

  async #moveHorizonBack(): Promise<void> {
    const to = this.#retention.horizon - this.scheduler.random.integer(0, 2 * DAY_MS);
    await this.scheduler.native(() => this.#reader.restoreHorizon(to));
    await this.#readRetention(true);
  }

  async #executed(by: Task, method: string, args: readonly unknown[], result: unknown): Promise<void> {
    if (method === 'prune') await this.#readRetention(false);
    if (method !== 'append') return;
    const [batch] = args as [Batch];
    const appended = result as Appended;
    this.scheduler.note(`${appended.kind} ${batch.source.name} ${batch.id} ${batch.events.length}`);
    if (appended.kind !== 'appended') return;
    for (const checker of this.#checkers) checker.appended?.(batch, appended);
    if (by.name.startsWith('follow')) this.ledger.noteFollowed(batch.events);
    await this.#acknowledged('the store', batch.source.name, batch.events.length - appended.beforeHorizon);
  }

  async #acknowledged(by: string, source: string, records: number): Promise<void> {
    for (const checker of this.#checkers) await checker.acknowledged?.(by, source, records);
  }

  async #readRetention(isMovedBack: boolean): Promise<void> {
    this.#retention = await this.scheduler.native(() => this.#reader.retention());
    for (const checker of this.#checkers) checker.retained?.(this.#retention, isMovedBack);
  }

  /** Ends all trouble, lets every process read everything, and checks all invariants. */
  async #settle(task: Task): Promise<void> {
    this.#isSettling = true;
    this.scheduler.note('settles');
    const pause = (ms: number) => this.scheduler.pause(task, 'settles', ms);
    while (this.#subtasks > 0) await pause(MINUTE_MS);
    this.#clockOffset = 0;
    if (this.#disk.errors > 0) {
      // A file that could not be read is read again when it changes, or by the next process.
      for (const slot of this.#slots) this.#restart(slot);
      this.#disk.errors = 0;
    }
    while (this.#subtasks > 0) await pause(MINUTE_MS);
    for (const log of this.#logs) {
      // A line in time shows that the clock is right.
      const { source } = log.ingest;
      const write = () => [this.ledger.write(source.name, this.scheduler.now, 'counted', log.padding)];
      await log.write(write, (_, ms) => pause(ms));
    }
    for (const end = this.scheduler.now + SETTLE_MS; this.scheduler.now < end; ) await pause(10_000);
    for (const checker of this.#checkers) await checker.settled?.();
    this.counts.checks++;
    this.#warnings.clear();
    this.#isOrderly = true;
    this.#isSettling = false;
  }
}

/** What happens, and how often. */
const EVENTS = {
  lines: 60,
  push: 8,
  rotation: 8,
  kill: 5,
  restart: 3,
  ingest: 1,
  'store trouble': 1.5,
  'disk trouble': 0.5,
  'wrong clock': 0.4,
  'inexact clock': 0.5,
  'emptied log': 0.4,
  'refilled log': 0.5,
  'backup copy': 0.5,
  'removed file': 0.3,
  'horizon moved back': 0.2,
} as const;

/** After these, files are read oldest first. */
const ORDERLY = [
  'lines',
  'push',
  'rotation',
  'kill',
  'restart',
  'store trouble',
  'inexact clock',
  'horizon moved back',
];
