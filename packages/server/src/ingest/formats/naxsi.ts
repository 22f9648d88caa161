/** NAXSI: lines in the error log of nginx, one for each flagged request, with its scores and the rules that matched. */
import { attackDetails, type Category } from '../../event.ts';
import type { Classification } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import { categoryOfName, NAXSI_RULES, NAXSI_SCORES } from '../categories/vendor-tables.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { parseLocalTime } from './log-time.ts';

export const naxsi: TextFormat = {
  name: 'naxsi',
  about: 'NAXSI in the error log of nginx',
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} /.test(line),
    ],
    ['process like [error] 34#34: *8', (line) => / \[\w+\] \d+#\d+: /.test(line)],
    [
      'NAXSI_FMT or {"ip": at the start of the message',
      (line) => /: (?:\*\d+ )?(?:NAXSI_|\{"ip":)/.test(line),
    ],
  ],
  // At the beginning of the message only: elsewhere, clients could write it.
  recognizes: (line) => line.charCodeAt(4) === SLASH && MESSAGE.test(line.slice(0, HEAD_LENGTH)),
  parse: parseNaxsi,
};

const SLASH = 0x2f;
const HEAD_LENGTH = 120;
const TIME_LENGTH = 19;
/** `2026/07/01 10:20:30 [error] 34#34: *8 NAXSI_FMT: ip=..`; newer versions can write JSON instead. */
const MESSAGE =
  /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} \[\w+\] \d+#\d+: (?:\*\d+ )?(?:(NAXSI_FMT: )|(NAXSI_EXLOG: )|(?=\{"ip":))/;

function parseNaxsi(line: string, { zone }: Context): Reading {
  const time = parseLocalTime(line.slice(0, TIME_LENGTH), zone);
  if (time === null) return dropped('unknown_format');
  const match = MESSAGE.exec(line.slice(0, HEAD_LENGTH));
  if (match === null) return dropped('other_log_line');
  const [head, isText, isExtra] = match;
  const message = line.slice(head.length);
  const values = isText || isExtra ? textValues(message) : jsonValues(message);
  // The values that matched, one line each, beside the line of the request; and the rest of a line that was too long.
  const isJsonExtra = values.some(({ key }) => key === 'content' || key === 'id') && !modeOf(values);
  if (isExtra || values[0]?.key !== 'ip' || (!isText && isJsonExtra)) return dropped('same_request');
  return attackOf(values, time);
}

interface Value {
  key: string;
  value: string;
}

/** More than fits into the 2,048 bytes that nginx gives a line. */
const VALUES_MAX = 1_024;

function textValues(message: string): Value[] {
  const end = message.indexOf(', client: ');
  return (end === -1 ? message : message.slice(0, end)).split('&', VALUES_MAX).map((part) => {
    const equals = part.indexOf('=');
    return { key: part.slice(0, Math.max(equals, 0)), value: part.slice(equals + 1) };
  });
}

/** Not JSON.parse: nginx cuts long lines. A quote inside a value has a backslash in front, so no value can pose as a key. */
function jsonValues(message: string): Value[] {
  const values: Value[] = [];
  for (const [, key = '', text, number] of message.slice(0, JSON_LENGTH_MAX).matchAll(JSON_VALUE)) {
    values.push({ key, value: text ?? number ?? '' });
    if (values.length === VALUES_MAX) break;
  }
  return values;
}

const JSON_LENGTH_MAX = 8_192;
const JSON_VALUE = /(?<!\\)"([$\w]{1,64})":(?:"((?:[^"\\]|\\.)*)"|(\d+))/g;

function attackOf(values: readonly Value[], time: number): Reading {
  const first = (key: string) => values.find((each) => each.key === key)?.value ?? '';
  // The Host header, which stands in front of the mode, is not escaped: what looks like a score there is none.
  const told = values.slice(values.findLastIndex(({ key }) => MODES.includes(key)) + 1);
  const scores = scoresOf(told);
  const rules = told.filter(({ key, value }) => /^id\d*$/.test(key) && /^\d{1,19}$/.test(value));
  const judged = rules.slice(0, RULES_MAX).map(({ value }) => judgeRule(value));
  const best = scores.reduce<Classification | null>(
    (top, each) => (top === null || each.points > top.points ? each : top),
    null,
  );
  // A line that was cut, or forged by a Host header, is an attack all the same.
  const attack = best?.category ?? judged[0]?.category ?? UNTOLD;
  const rule = judged.find(({ category }) => category === attack) ?? judged[0] ?? best;
  return {
    kind: 'record',
    record: {
      time,
      host: first('server') || undefined,
      hostId: undefined,
      request: false,
      attack,
      count: 1,
      details: attackDetails({
        blocked: isBlocked(values),
        source: first('ip'),
        url: first('uri'),
        rule: rule?.rule,
      }),
      evidence: [...scores, ...judged],
    },
  };
}

const RULES_MAX = 32;
const UNTOLD: Category = 'vuln';

/** `cscore0=$SQL&score0=8`, or `"$SQL":8` in newer JSON. */
function scoresOf(values: readonly Value[]): Classification[] {
  return values.flatMap(({ key, value }, i) => {
    if (key.startsWith('$')) return [judgeScore(key, value)];
    const next = values[i + 1];
    return key.startsWith('cscore') ? [judgeScore(value, next?.key === key.slice(1) ? next.value : '')] : [];
  });
}

function judgeScore(name: string, points: string): Classification {
  const rule = name.slice(0, NAME_LENGTH_MAX);
  const category = categoryOfName(NAXSI_SCORES, rule) ?? CUSTOM_RULE;
  return { rule, points: /^\d{1,9}$/.test(points) ? Number(points) : 0, category, because: `score ${rule}` };
}

const NAME_LENGTH_MAX = 64;

function judgeRule(id: string): Classification {
  const number = Number(id);
  const row = NAXSI_RULES.find(({ from, to }) => number >= from && number <= to);
  const because = row === undefined ? 'not a rule of NAXSI' : `rule id ${row.from} to ${row.to}`;
  return { rule: id, points: 0, category: row?.category ?? CUSTOM_RULE, because };
}

/** `block=` before version 0.56, `config=` up to version 1.3, `mode=` since. */
const MODES = ['block', 'config', 'mode'];

function modeOf(values: readonly Value[]): string {
  return values.findLast(({ key }) => key === 'mode' || key === 'config')?.value ?? '';
}

/** Old versions have `learning=0&block=1`. What a rule with DROP matches is stopped in learning mode too. */
function isBlocked(values: readonly Value[]): boolean {
  const mode = modeOf(values);
  if (mode !== '') return mode === 'block' || mode.endsWith('drop');
  const has = (key: string, value: string) => values.some((each) => each.key === key && each.value === value);
  return has('block', '1') && !has('learning', '1');
}
