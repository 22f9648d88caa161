/** The vendor's firewall logs as exported by its log service (LTS), flat JSON: an access log and an attack log. */
import { attackDetails } from '../../attack-details.ts';
import { type AttackDetails, ID_PATTERN, isCategory, requestKey } from '../../event.ts';
import { judgement } from '../categories/classify.ts';
import { categoryOfName, LTS } from '../categories/vendor-tables.ts';
import { dropped, field, type JsonFormat, type LogRecord, setResponse } from './format.ts';
import { asText, firstText, firstTime, firstValue, type JsonObject } from './json.ts';

const TIMES = ['time_iso8601', 'attack-time', 'waf-time', 'time'];

export const lts: JsonFormat = {
  name: 'lts',
  traits: [field('hostid'), field('category'), field('time', ['waf-time', 'attack-time'])],
  recognizes: (fields) =>
    fields.hostid !== undefined &&
    (fields.category === 'access' ||
      fields.category === 'attack' ||
      'waf-time' in fields ||
      'attack-time' in fields),
  parse(fields, { zone }) {
    const time = firstTime(fields, TIMES, zone);
    if (time === null) return dropped('bad_time');
    const name = asText(fields.attack);
    const isAttackLog = fields.category === 'attack' || 'attack-time' in fields;
    if (isAttackLog && name === '') return dropped('bad_record');
    const host = firstText(fields, ['http_host', 'host']);
    const hostId = asText(fields.hostid);
    const known = isCategory(name) ? name : categoryOfName(LTS.attacks, name);
    const attack = name === '' ? null : (known ?? LTS.unknown);
    const rule = asText(fields.rule).slice(0, 64);
    const id = isAttackLog ? asText(fields.requestid) : '';
    const record: LogRecord = {
      time,
      host,
      // Host names are registered when first seen; the vendor's ID need not be registered here.
      hostId: host === undefined && ID_PATTERN.test(hostId) ? hostId : undefined,
      // The access log has every request, including those with an attack.
      request: !isAttackLog,
      attack,
      count: 1,
      details: attack === null ? undefined : detailsOf(fields),
      // A request can have several alarms.
      ...(id !== '' && { flagged: { kind: 'lines', log: 'lts', ids: [requestKey(id)] } as const }),
      evidence: attack === null ? undefined : [judgement(rule, attack, `attack ${name.slice(0, 64)}`)],
    };
    if (!isAttackLog) {
      setResponse(record, {
        status: firstValue(fields, ['response_code', 'status']),
        upstream: 'upstream_status' in fields ? asText(fields.upstream_status) : undefined,
        bytesIn: asText(fields.request_length),
        bytesOut: firstValue(fields, ['body_bytes_sent', 'bytes_send']),
        url: firstText(fields, ['url', 'uri']),
      });
    }
    return { kind: 'record', record };
  },
};

/** Other actions, such as `block` and `captcha`, stop a request. */
const PASSING_ACTIONS: ReadonlySet<string> = new Set(['log', 'pass', 'allow']);

function detailsOf(fields: JsonObject): AttackDetails | undefined {
  const action = asText(fields.action).toLowerCase();
  const rule = asText(fields.rule);
  return attackDetails({
    blocked: action === '' ? undefined : !PASSING_ACTIONS.has(action),
    source: firstText(fields, ['remote_ip', 'sip', 'cip']),
    id: asText(fields.requestid),
    method: asText(fields.method),
    url: firstText(fields, ['url', 'uri']),
    query: firstText(fields, ['args']),
    status: firstText(fields, ['response_code', 'status']),
    userAgent: asText(fields.user_agent),
    rule,
    rules:
      rule === '' ? [] : [{ id: rule, variable: asText(fields.location), value: asText(fields.hit_data) }],
    country: firstText(fields, ['country', 'country_code']),
  });
}
