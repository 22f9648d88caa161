/** The vendor's firewall logs, as its log service (LTS) hands them out: flat JSON, an access log and an attack log. */
import { attackDetails, CATEGORIES, type Category, categoryNumber, ID_PATTERN } from '../../event.ts';
import { categoryOfName, LTS_TABLE, LTS_UNKNOWN } from '../categories/vendor-tables.ts';
import { firstText, firstTime } from './access-json.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import { asText, type JsonObject } from './json-line.ts';

const TIMES = ['time_iso8601', 'attack-time', 'waf-time', 'time'];

export const lts: JsonFormat = {
  name: 'lts',
  about: "the vendor's access and attack logs out of LTS, JSON",
  traits: [
    anyOf('hostid', ['hostid']),
    anyOf('category', ['category']),
    anyOf('time', ['waf-time', 'attack-time']),
  ],
  recognizes: (fields) =>
    fields.hostid !== undefined &&
    (fields.category === 'access' ||
      fields.category === 'attack' ||
      'waf-time' in fields ||
      'attack-time' in fields),
  parse: parseLts,
};

function parseLts(fields: JsonObject, { zone }: Context): Reading {
  const time = firstTime(fields, TIMES, zone);
  if (time === null) return dropped('bad_time');
  const name = asText(fields.attack);
  const isAttackLog = fields.category === 'attack' || 'attack-time' in fields;
  if (isAttackLog && name === '') return dropped('bad_record');
  const host = firstText(fields, ['http_host', 'host']);
  const hostid = asText(fields.hostid);
  const attack = name === '' ? null : attackCategory(name);
  const record = {
    time,
    host,
    // Its ID is the vendor's, and need not be registered here: the name is, on first sight.
    hostId: host === undefined && ID_PATTERN.test(hostid) ? hostid : undefined,
    // The access log has every request, those with an attack too.
    request: !isAttackLog,
    attack,
    count: 1,
    details: attack === null ? undefined : detailsOf(fields),
    evidence: attack === null ? undefined : [judgement(fields, attack)],
  };
  return { kind: 'record', record, ...(isAttackLog && { id: asText(fields.requestid) }) };
}

/** `block` and `captcha` stop a request, `log` does not. */
function detailsOf(fields: JsonObject) {
  const action = asText(fields.action).toLowerCase();
  return attackDetails({
    blocked: action === '' ? undefined : !LETS_PASS.has(action),
    source: firstText(fields, ['remote_ip', 'sip', 'cip']),
    url: firstText(fields, ['url', 'uri']),
    rule: asText(fields.rule),
    country: firstText(fields, ['country', 'country_code']),
  });
}

const LETS_PASS: ReadonlySet<string> = new Set(['log', 'pass', 'allow']);

function attackCategory(name: string): Category {
  const number = categoryNumber(name);
  return (
    (number === undefined ? undefined : CATEGORIES[number]) ?? categoryOfName(LTS_TABLE, name) ?? LTS_UNKNOWN
  );
}

function judgement(fields: JsonObject, category: Category) {
  return {
    rule: asText(fields.rule).slice(0, 64),
    points: 0,
    category,
    because: `attack ${asText(fields.attack).slice(0, 64)}`,
  };
}
