/** Icons as strokes. Hidden from screen readers, so every icon needs a text label. */
const SHAPES = {
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 12.5l4.5 4.5L19 7.5',
  download: 'M12 4v11m-5-5 5 5 5-5M5 20h14',
  search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 20 20',
  close: 'M6 6l12 12M18 6 6 18',
  down: 'M7 10l5 5 5-5',
  back: 'M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3',
  pause: 'M9 6v12M15 6v12',
  light:
    'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v1.5M12 19.5V21M4.5 12H3M21 12h-1.5M6.7 6.7 5.6 5.6M18.4 18.4l-1.1-1.1M6.7 17.3l-1.1 1.1M18.4 5.6l-1.1 1.1',
  dark: 'M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z',
  plus: 'M12 5v14M5 12h14',
  table: 'M4 5h16v14H4zM4 10h16M4 14.5h16M10 10v9',
  edit: 'M4 20h4L19 9l-4-4L4 16z',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2',
  globe: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c5 5 5 13 0 18M12 3c-5 5-5 13 0 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  screen: 'M4 5h16v11H4zM9 20h6',
  filter: 'M4 6h16l-6 7v6l-4-2v-4z',
  exclude: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM6 6l12 12',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 20a8 8 0 0 1 16 0',
  server: 'M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01',
} as const;

export type IconName = keyof typeof SHAPES;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={SHAPES[name]} />
    </svg>
  );
}
