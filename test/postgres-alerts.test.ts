/** Alerts with everything in PostgreSQL: several processes evaluate once, and one takes over from another. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually } from './process.ts';
import { Sandbox } from './sandbox.ts';
import { WebhookReceiver } from './webhook-receiver.ts';

describe.skipIf(!POSTGRES.isInstalled() && process.env.CI !== 'true')(
  `with postgresql (${POSTGRES.needs})`,
  () => {
    const sandbox = new Sandbox();
    let postgres: PostgresServer;
    let receiver: WebhookReceiver;
    let env: Readonly<Record<string, string>>;
    beforeAll(async () => {
      postgres = await PostgresServer.start();
      receiver = await WebhookReceiver.start();
      env = {
        WAFSTAT_STORE: 'postgres',
        WAFSTAT_POSTGRES_URL: postgres.url.replace('@', `:${encodeURIComponent(PASSWORD)}@`),
        WAFSTAT_ALERT_ALLOW_PRIVATE: 'true',
        WAFSTAT_WEBHOOK: receiver.url,
      };
    });
    afterAll(async () => {
      receiver?.stop();
      await sandbox.clear();
      await postgres?.stop();
    });

    const run = async (...args: string[]) => {
      const { status, stderr, stdout } = await sandbox.run(args, { env });
      expect([status, stderr]).toEqual([0, '']);
      return stdout;
    };
    const serve = async () => {
      const process = sandbox.start(['serve', '--listen', '127.0.0.1:0'], { env });
      await process.line('wafstat listens on ');
      return process;
    };
    const attack = async (count: number) => {
      const event = { time: Date.now() - 1_000, host: 'a.example', attack: 'sqli', count };
      const file = sandbox.write(`${count}.ndjson`, `${JSON.stringify(event)}\n`);
      const { status } = await sandbox.run(['ingest', '--project', 'default', '--format', 'events', file], {
        env,
      });
      expect(status).toBe(0);
    };

    test('two processes deliver each incident once; when one is killed, the other goes on', async () => {
      await run('init');
      await run('alert', 'add', 'first', '--project', 'default', '--attacks', '100', '--within', '1h');
      await run('alert', 'add', 'second', '--project', 'default', '--attacks', '1000', '--within', '1h');
      const servers = await Promise.all([serve(), serve()]);
      await attack(100);
      // Killed before it has recorded the outcome, it would leave the delivery to the other process.
      const isDelivered = () => servers.some(({ stderr }) => stderr.includes('open delivered')) || undefined;
      await eventually(isDelivered, 'the first delivery');
      const leader = servers.findIndex(({ stderr }) => stderr.includes('incident opened'));
      expect(servers.filter(({ stderr }) => stderr.includes('incident opened'))).toHaveLength(1);
      await servers[leader]?.kill();
      await attack(1_000);
      await eventually(() => receiver.keys('second', 'open')[0], 'the second message');
      const other = servers[1 - leader];
      await eventually(() => other?.stderr.includes('incident opened') || undefined, 'its log');
      expect(receiver.messages.map(({ body }) => [body.alert, body.state])).toEqual([
        ['first', 'open'],
        ['second', 'open'],
      ]);
    });
  },
);
