/** NAXSI: one line per flagged request in the error log of nginx, with its scores and the matched rules. */
import { attackDetails, queryOf, RULES_MAX } from '../../attack-details.ts';
import { type Classification, judgement } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import { categoryOfName, NAXSI } from '../categories/vendor-tables.ts';
import { isOnly, NGINX_TIME_LENGTH, NGINX_TIME_TRAIT, requestOf } from './error-logs.ts';
import { dropped, type Reading, requestRecord, type TextFormat } from './format.ts';
import { parseLocalTime } from './timestamps.ts';

export const naxsi: TextFormat = {
  name: 'naxsi',
  traits: [
    NGINX_TIME_TRAIT,
    ['process like [error] 34#34: *8', (line) => / \[\w+\] \d+#\d+: /.test(line)],
    [
      'NAXSI_FMT or {"ip": at the start of the message',
      (line) => /: (?:\*\d+ )?(?:NAXSI_|\{"ip":)/.test(line),
    ],
  ],
  // Must be at the start of the message: elsewhere, clients could write it.
  recognizes: (line) => line.startsWith('/', 4) && MESSAGE.test(line.slice(0, HEAD_LENGTH)),
  parse(line, { zone }) {
    const time = parseLocalTime(line.slice(0, NGINX_TIME_LENGTH), zone);
    if (time === null) return dropped('unknown_format');
    const match = MESSAGE.exec(line.slice(0, HEAD_LENGTH));
    if (match === null) return dropped('other_log_line');
    const [head, isText, isExtra] = match;
    const message = line.slice(head.length);
    const values = isText || isExtra ? textValues(message) : jsonValues(message);
    // Additional lines with the matched values, and the rest of a line that was too long.
    const isJsonExtra = values.some(({ key }) => key === 'content' || key === 'id') && !modeOf(values);
    if (isExtra || values[0]?.key !== 'ip' || (!isText && isJsonExtra)) return dropped('same_request', time);
    return attackOf(values, message, time);
  },
};

const HEAD_LENGTH = 120;
/** `2026/07/01 10:20:30 [error] 34#34: *8 NAXSI_FMT: ip=..`; newer versions can also write JSON. */
const MESSAGE =
  /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} \[\w+\] \d+#\d+: (?:\*\d+ )?(?:(NAXSI_FMT: )|(NAXSI_EXLOG: )|(?=\{"ip":))/;

interface Value {
  key: string;
  value: string;
}

/** More than fit into a line of nginx, which has at most 2,048 bytes. */
const VALUES_MAX = 1_024;

function textValues(message: string): Value[] {
  const end = message.indexOf(', client: ');
  return (end === -1 ? message : message.slice(0, end)).split('&', VALUES_MAX).map((part) => {
    const equals = part.indexOf('=');
    return { key: part.slice(0, Math.max(equals, 0)), value: part.slice(equals + 1) };
  });
}

/** Not JSON.parse: nginx cuts long lines. Quotes inside values are escaped, so no value can look like a key. */
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

function attackOf(values: readonly Value[], message: string, time: number): Reading {
  const first = (key: string) => values.find((each) => each.key === key)?.value ?? '';
  // The Host header precedes the mode and is not escaped: anything before the mode may be forged, except the last `rid`.
  const mode = values.findLastIndex(({ key }) => MODES.includes(key));
  const trusted = values.slice(mode + 1);
  const id = values.slice(0, Math.max(mode, 0)).findLast(({ key }) => key === 'rid')?.value;
  const scores = scoresOf(trusted);
  const rules = matchedRules(trusted).slice(0, RULES_MAX);
  const judged = rules.map((each) => judgeRule(each.id));
  const [best] = scores.toSorted((one, other) => other.points - one.points);
  // A line that was cut, or forged by a Host header, is still an attack.
  const attack = best?.category ?? judged[0]?.category ?? 'vuln';
  const rule = judged.find(({ category }) => category === attack) ?? judged[0] ?? best;
  const { method, url = '' } = isOnly(message, ', client: ') ? requestOf(message, 0) : {};
  const details = attackDetails({
    blocked: isBlocked(values),
    source: first('ip'),
    id,
    method,
    url: pathOf(first('uri')),
    query: queryOf(url),
    rule: rule?.rule,
    rules,
  });
  const record = requestRecord(time, first('server') || undefined);
  const evidence = [...scores, ...judged];
  return { kind: 'record', record: { ...record, request: false, attack, details, evidence } };
}

/** Newer releases of nginx also encode the slashes. */
function pathOf(uri: string): string {
  return uri.startsWith('/') ? uri : uri.replaceAll(/%2f/gi, '/');
}

/** `zone0=ARGS&id0=1000&var_name0=a`, and the same without numbers. */
function matchedRules(values: readonly Value[]): { id: string; variable: string }[] {
  return values.flatMap(({ key, value }, i) => {
    if (!/^id\d*$/.test(key) || !/^\d{1,19}$/.test(value)) return [];
    const [zone, name] = [values[i - 1], values[i + 1]];
    const parts = [
      zone?.key.startsWith('zone') && zone.value,
      name?.key.startsWith('var_name') && name.value,
    ];
    return [{ id: value, variable: parts.filter(Boolean).join(':') }];
  });
}

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
  const category = categoryOfName(NAXSI.scores, rule) ?? CUSTOM_RULE;
  return { rule, points: /^\d{1,9}$/.test(points) ? Number(points) : 0, category, because: `score ${rule}` };
}

const NAME_LENGTH_MAX = 64;

function judgeRule(id: string): Classification {
  const number = Number(id);
  const row = NAXSI.rules.find(({ from, to }) => number >= from && number <= to);
  const because = row === undefined ? 'not a rule of NAXSI' : `rule id ${row.from} to ${row.to}`;
  return judgement(id, row?.category ?? CUSTOM_RULE, because);
}

/** `block=` before version 0.56, `config=` up to version 1.3, then `mode=`. */
const MODES = ['block', 'config', 'mode'];

function modeOf(values: readonly Value[]): string {
  return values.findLast(({ key }) => key === 'mode' || key === 'config')?.value ?? '';
}

/** Old versions write `learning=0&block=1`. Rules with DROP also stop requests in learning mode. */
function isBlocked(values: readonly Value[]): boolean {
  const mode = modeOf(values);
  if (mode !== '') return mode === 'block' || mode.endsWith('drop');
  const has = (key: string, value: string) => values.some((each) => each.key === key && each.value === value);
  return has('block', '1') && !has('learning', '1');
}
