import type { Writable } from 'node:stream';

const WIDTH = 30;
/** Often enough to move, seldom enough to cost nothing. */
const REDRAW_MS = 100;

export interface ProgressBar {
  advance(bytes: number): void;
  end(): void;
}

/** Draws on a terminal and is silent elsewhere. `total` null: how much there is to come is not known. */
export function progressBar(
  stream: Writable & { isTTY?: boolean },
  name: string,
  total: number | null,
  now: () => number,
): ProgressBar {
  if (!stream.isTTY) return { advance() {}, end() {} };
  let done = 0;
  let drawn = 0;
  function draw(): void {
    const share = total === null || total === 0 ? null : Math.min(1, done / total);
    const bar =
      share === null
        ? ''
        : ` ${'█'.repeat(Math.round(share * WIDTH)).padEnd(WIDTH, '░')} ${Math.round(share * 100)}%`;
    stream.write(`\r\u001b[K${name}${bar} ${(done / 1e6).toFixed(1)} MB`);
    drawn = now();
  }
  return {
    advance(bytes) {
      done += bytes;
      if (now() - drawn >= REDRAW_MS) draw();
    },
    end() {
      draw();
      stream.write('\n');
    },
  };
}
