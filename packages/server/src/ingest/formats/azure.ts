/**
 * Azure Application Gateway and Front Door. Firewall logs have one object per matched rule, joined by the request ID;
 * access logs have every request.
 */
import type { RawDetails } from '../../attack-details.ts';
import { addScores, type Rule } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import { AZURE, categoryOfName } from '../categories/vendor-tables.ts';
import {
  dropped,
  field,
  hostOfUrl,
  type JsonFormat,
  objectField,
  type Reading,
  requestReading,
  ruleMatch,
} from './format.ts';
import {
  asObject,
  asText,
  firstText,
  firstTime,
  firstValue,
  type JsonObject,
  lowerText,
  objectsOf,
} from './json.ts';
import { crsRule, isCrsId, namedRule, setMatchedPart } from './rules.ts';

const TIMES = ['time', 'timeStamp', 'timestamp', 'TimeGenerated'];

export const azureWaf: JsonFormat = {
  name: 'azure-waf',
  traits: [
    objectField('properties'),
    field('time', TIMES),
    ['category of a firewall or access log', (fields) => kindOf(fields) !== null],
  ],
  recognizes: (fields) => asObject(fields.properties) !== null && kindOf(fields) !== null,
  parse(fields, { zone }) {
    const properties = asObject(fields.properties);
    const kind = kindOf(fields);
    if (properties === null || kind === null) return dropped('bad_record');
    const time = firstTime(fields, TIMES, zone);
    if (time === null) return dropped('bad_time');
    switch (kind) {
      case 'gateway rule':
        return gatewayRule(properties, time);
      case 'front door rule':
        return frontDoorRule(properties, time);
      case 'request':
        return accessRecord(properties, time);
    }
  },
};

type Kind = 'gateway rule' | 'front door rule' | 'request';

/** The kind follows from `category`; exports without it are recognized by their fields. */
function kindOf(fields: JsonObject): Kind | null {
  const category = lowerText(fields.category);
  if (category === 'applicationgatewayfirewalllog') return 'gateway rule';
  if (category === 'frontdoorwebapplicationfirewalllog') return 'front door rule';
  if (category === 'applicationgatewayaccesslog' || category === 'frontdooraccesslog') return 'request';
  if (category !== '') return null;
  const properties = asObject(fields.properties) ?? {};
  if ('ruleName' in properties && 'trackingReference' in properties) return 'front door rule';
  return 'ruleId' in properties && 'transactionId' in properties ? 'gateway rule' : null;
}

/** `action`: Matched for a rule that adds to the score, Blocked or Detected for the verdict and for rules without a score. */
function gatewayRule(properties: JsonObject, time: number): Reading {
  const id = asText(properties.ruleId);
  const action = lowerText(properties.action);
  if (id === '' || action === '') return dropped('bad_record');
  if (action.startsWith('allow')) return dropped('not_an_attack', time);
  const ruleSet = asText(properties.ruleSetType);
  const version = asText(properties.ruleSetVersion);
  const group = asText(properties.ruleGroup);
  const details = asObject(properties.details);
  const file = asText(details?.file).slice(-128);
  const isCustom = ruleSet === '' || /^custom/i.test(ruleSet);
  const rule = isCustom ? customRule(id) : managedRule(id, ruleSet, version, group, file);
  addScores(rule, `${asText(properties.message)} ${asText(details?.message)}`);
  setMatchedPart(rule, asText(details?.message).replace(/ \.{3,}$/, ''), asText(details?.data));
  return ruleMatch({
    id: asText(properties.transactionId),
    time,
    host: firstText(properties, ['hostname', 'host']),
    rules: [rule],
    details: detailsOf(properties, action.startsWith('block')),
  });
}

/** `Microsoft_DefaultRuleSet-2.1-SQLI-942100` */
const MANAGED_NAME = /^(\w*RuleSet)-([\d.]+(?:[_-]preview[\d.]*)?)-(.+)-([A-Za-z]*\d+)$/;

function frontDoorRule(properties: JsonObject, time: number): Reading {
  const name = asText(properties.ruleName).slice(0, 256);
  const action = lowerText(properties.action);
  if (name === '' || action === '') return dropped('bad_record');
  // Allowed, or the client had passed the challenge before.
  if (/^allow|(?:challenge|captcha)(?:valid|active)$/.test(action)) return dropped('not_an_attack', time);
  const [, ruleSet = '', version = '', group = '', id = ''] = MANAGED_NAME.exec(name) ?? [];
  const isLogOnly = action === 'log' || action.includes('scor') || action.endsWith('pass');
  // In detection mode the log names the action that prevention mode would have taken.
  const blocked = !isLogOnly && lowerText(properties.policyMode) !== 'detection';
  const rule = id === '' ? customRule(name) : managedRule(id, ruleSet, version, group, '');
  const [match = {}] = objectsOf(asObject(properties.details)?.matches);
  const [variable, value] = [asText(match.matchVariableName), asText(match.matchVariableValue)];
  return ruleMatch({
    id: asText(properties.trackingReference),
    time,
    host: firstText(properties, ['host', 'hostName']) ?? hostOfUrl(asText(properties.requestUri)),
    rules: [{ ...rule, variable, value }],
    details: detailsOf(properties, blocked),
  });
}

function managedRule(id: string, ruleSet: string, version: string, group: string, file: string): Rule {
  // The numbers of CRS 2 had other meanings.
  if (isCrsId(id) && !version.startsWith('2.2.')) return crsRule(id, file);
  const byGroup = categoryOfName(AZURE.groups, group) ?? categoryOfName(AZURE.groups, ruleSet);
  if (byGroup !== null) return namedRule(id, byGroup, `rule group ${group || ruleSet}`);
  return namedRule(id, AZURE.managedRule, 'a managed rule');
}

function customRule(name: string): Rule {
  if (AZURE.rateLimit.name.test(name)) {
    return namedRule(name, AZURE.rateLimit.category, 'a rate limit by its name');
  }
  return namedRule(name, CUSTOM_RULE, 'a custom rule');
}

function detailsOf(properties: JsonObject, blocked: boolean): RawDetails {
  return {
    blocked,
    // Front Door takes clientIP from X-Forwarded-For if the client sends one. Application Gateway has no socketIP.
    source: firstText(properties, ['socketIP', 'socketIp', 'clientIp', 'clientIP']),
    url: asText(properties.requestUri),
    country: firstText(properties, ['clientCountry', 'country']),
  };
}

function accessRecord(properties: JsonObject, time: number): Reading {
  // A request between two Front Door locations. The client's request has its own object.
  if (lowerText(properties.isReceivedFromClient) === 'false' || properties.isReceivedFromClient === false) {
    return dropped('same_request', time);
  }
  const host =
    firstText(properties, ['originalHost', 'hostName', 'host']) ?? hostOfUrl(asText(properties.requestUri));
  return requestReading(time, host, {
    status: firstValue(properties, ['httpStatusCode', 'httpStatus']),
    upstream: 'serverStatus' in properties ? asText(properties.serverStatus) : undefined,
    bytesIn: firstValue(properties, ['requestBytes', 'receivedBytes']),
    bytesOut: firstValue(properties, ['responseBytes', 'sentBytes']),
    url: asText(properties.requestUri),
  });
}
