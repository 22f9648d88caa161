/**
 * Messages to systemd (sd_notify): ready, stopping, and heartbeats for the watchdog. They are datagrams to a Unix socket,
 * which Node.js cannot send, so `systemd-notify` sends them. It is part of every systemd, and needs no privileges.
 */
import { spawn } from 'node:child_process';
import type { Io } from './command.ts';

const PROGRAM = '/usr/bin/systemd-notify';
/** A message that takes longer is lost; the next one follows. */
const SEND_MS_MAX = 5_000;

/**
 * Reports that the process is ready. From then on, the event loop sends heartbeats at half the watchdog's interval, and a
 * stop is reported. Does nothing without systemd.
 */
export function notifyReady({ env, stop }: Pick<Io, 'env' | 'stop'>): void {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: interval, WATCHDOG_PID: watched } = env;
  if (socket === undefined) return;
  const send = (...message: string[]) => {
    // Without the rest of the environment, which may contain passwords. Without systemd-notify, systemd reports a timeout.
    const child = spawn(PROGRAM, message, { env: { NOTIFY_SOCKET: socket }, stdio: 'ignore' });
    child.on('error', () => {});
    setTimeout(() => child.kill(), SEND_MS_MAX).unref();
    // On a busy machine it takes longer than this process may take to exit.
    child.unref();
  };
  send('--ready', '--status=ready');
  stop.addEventListener('abort', () => send('STOPPING=1'), { once: true });
  const isWatched = watched === undefined || watched === String(process.pid);
  if (!(Number(interval) > 0) || !isWatched) return;
  setInterval(() => send('WATCHDOG=1'), Number(interval) / 2_000).unref();
}
