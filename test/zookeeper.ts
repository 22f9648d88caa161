/** A ZooKeeper from Debian, on loopback, which replicas of ClickHouse need. */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

const JARS = '/usr/share/java';
const NEEDED = ['zookeeper', 'zookeeper-jute', 'slf4j-api', 'slf4j-simple', 'netty-all', 'metrics-core'];

export const ZOOKEEPER = {
  needs: 'apt-get install zookeeper',
  isThere: () => existsSync(join(JARS, 'zookeeper.jar')),
};

export async function startZooKeeper(): Promise<{ port: number; stop(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'wafstat-zookeeper-'));
  const port = await freePort();
  const file = join(folder, 'zoo.cfg');
  writeFileSync(
    file,
    `tickTime=2000\ndataDir=${folder}/data\nclientPort=${port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n`,
  );
  const jars = NEEDED.map((name) => join(JARS, `${name}.jar`)).join(':');
  const main = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
  const child = spawn('java', ['-Xmx128m', '-cp', jars, main, file], { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error('ZooKeeper has ended');
    return (await serves(port)) || undefined;
  }, 'ZooKeeper');
  return {
    port,
    async stop() {
      child.kill('SIGKILL');
      await ended;
      rmSync(folder, { recursive: true });
    },
  };
}

/** The port is open before it serves; its own answer tells. */
function serves(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    let said = '';
    const socket = connect(port, '127.0.0.1', () => socket.write('srvr'));
    // Who came too early is never answered.
    socket.setTimeout(500, () => socket.destroy());
    socket.on('data', (text) => {
      said += text;
    });
    socket.on('error', () => {}).on('close', () => resolve(said.includes('Mode: standalone')));
  });
}
