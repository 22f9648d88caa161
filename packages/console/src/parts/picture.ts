/** The timeline as a picture that can stand alone: with its title, its range and what the colours mean. */
import { exact } from '../format.ts';
import { type Points, total } from '../points.ts';
import { colour } from '../theme.ts';

const MARGIN = 24;
const HEAD = 64;

export function picture(chart: HTMLCanvasElement, title: string, caption: string, points: Points): Blob {
  const scale = chart.width / chart.clientWidth;
  const canvas = document.createElement('canvas');
  canvas.width = chart.width + 2 * MARGIN * scale;
  canvas.height = chart.height + (HEAD + 2 * MARGIN) * scale;
  const context = canvas.getContext('2d');
  if (context === null) throw new Error('The browser cannot draw a picture.');
  context.fillStyle = colour('panel');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, MARGIN * scale, (HEAD + MARGIN) * scale);
  context.scale(scale, scale);
  context.textBaseline = 'top';
  write(context, title, 'text', '600 18px system-ui, sans-serif', MARGIN, MARGIN);
  write(context, caption, 'muted', '13px system-ui, sans-serif', MARGIN, MARGIN + 26);
  context.textAlign = 'right';
  const right = chart.clientWidth + MARGIN;
  write(
    context,
    `Requests ${exact(total(points.requests))}`,
    'accent',
    '600 13px system-ui, sans-serif',
    right,
    MARGIN,
  );
  write(
    context,
    `Attacks ${exact(total(points.attacks))}`,
    'attack',
    '600 13px system-ui, sans-serif',
    right,
    MARGIN + 22,
  );
  // Not toBlob, which Chromium puts off for seconds while anything on the page moves.
  const [, base64 = ''] = canvas.toDataURL('image/png').split(',');
  return new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], { type: 'image/png' });
}

function write(
  context: CanvasRenderingContext2D,
  text: string,
  ink: string,
  font: string,
  x: number,
  y: number,
): void {
  context.font = font;
  context.fillStyle = colour(ink);
  context.fillText(text, x, y);
}
