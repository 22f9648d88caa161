/** Prints results as text for the terminal, and as Markdown for the documentation. */
import { isReached, median } from './rows.mjs';

export function textTable(rows) {
  const width = Math.max(...rows.map(({ name }) => name.length));
  return rows
    .map((row) => {
      const [middle, spread, goal, reached] = cells(row);
      return `${row.name.padEnd(width)}  ${middle.padStart(7)}  ${spread.padEnd(16)} ${goal.padEnd(8)} ${reached}`;
    })
    .join('\n');
}

export function markdownTable(rows) {
  const lines = rows.map((row) => `| ${[row.name, ...cells(row)].join(' | ')} |`);
  return ['| what | median | spread | goal | reached |', '|---|---|---|---|---|', ...lines].join('\n');
}

/** Instead of figures, if the HTTP layer shed all requests to a candidate. */
const SHED = 'shed';

/** Responses per second of all candidates, and their share of the limit. */
export function speedTable(speed) {
  const names = candidateNames(speed);
  const lines = Object.entries(speed).map(([query, speeds]) => {
    const columns = names.map((name) => {
      if (median(speeds[name]) === 0) return SHED;
      const share = median(speeds[name].map((per_s, round) => per_s / speeds.limit[round]));
      return `${Math.round(median(speeds[name])).toLocaleString('en')} (${share.toPrecision(2)})`;
    });
    return `| ${[query, ...columns].join(' | ')} |`;
  });
  return [...head('responses per second (of the limit)', names), ...lines].join('\n');
}

/** More about one view: `{speed, p99, cpu_us}`, each `{view: {candidate: [one per round]}}`. */
export function viewTable(view, { speed, p99, cpu_us }) {
  const lines = candidateNames(speed).map((name) => {
    const isShed = median(speed[view][name]) === 0;
    const columns = [speed, p99, cpu_us].map((figures) =>
      isShed ? SHED : short(median(figures[view][name])),
    );
    return `| ${[name, ...columns].join(' | ')} |`;
  });
  const columns = ['responses per second', '99th percentile, ms', 'processor time per response, us'];
  return [...head(view, columns), ...lines].join('\n');
}

function candidateNames(byQuery) {
  return Object.keys(Object.values(byQuery)[0]);
}

function head(what, names) {
  return [`| ${[what, ...names].join(' | ')} |`, `|---|${'---|'.repeat(names.length)}`];
}

export function compressionTable(compression) {
  const lines = Object.entries(compression).map(([way, { bytes, per_s }]) => {
    const speed = Math.round(median(per_s)).toLocaleString('en');
    return `| ${way} | ${bytes.toLocaleString('en')} | ${speed} |`;
  });
  return ['| response | bytes | per second |', '|---|---|---|', ...lines].join('\n');
}

function cells(row) {
  const { values, goal, note } = row;
  if (note) return [note, '', '', ''];
  const spread = values.length > 1 ? `${short(Math.min(...values))} to ${short(Math.max(...values))}` : '';
  const wanted = goal ? (goal.at_least === undefined ? `<= ${goal.at_most}` : `>= ${goal.at_least}`) : '';
  const reached = { true: 'yes', false: 'no', null: '' }[String(isReached(row))];
  return [short(median(values)), spread, wanted, reached];
}

function short(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
