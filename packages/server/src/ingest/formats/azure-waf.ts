/**
 * Azure: the firewall and access logs of Application Gateway and Front Door. Firewall logs have an object for each
 * matched rule, joined by the ID of the request; access logs have every request.
 */
import { attackDetails } from '../../event.ts';
import type { Rule } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import {
  AZURE_GROUPS,
  AZURE_MANAGED_RULE,
  AZURE_RATE_LIMIT,
  categoryOfName,
} from '../categories/vendor-tables.ts';
import { request } from './access.ts';
import { firstText, firstTime } from './access-json.ts';
import { anyOf, type Context, dropped, type JsonFormat, objectField, type Reading } from './format.ts';
import { asObject, asText, type JsonObject } from './json-line.ts';
import { hostOfUrl } from './request-url.ts';
import { crsRule, isCrsId, namedRule } from './vendor-rule.ts';

const TIMES = ['time', 'timeStamp', 'TimeGenerated'];

export const azureWaf: JsonFormat = {
  name: 'azure-waf',
  about: 'Azure Application Gateway and Front Door: firewall and access logs',
  traits: [
    objectField('properties'),
    anyOf('time', TIMES),
    ['category of a firewall or access log', (fields) => kindOf(fields) !== null],
  ],
  recognizes: (fields) => asObject(fields.properties) !== null && kindOf(fields) !== null,
  parse: parseAzure,
};

type Kind = 'gateway rule' | 'front door rule' | 'request';

/** Kind of record, by `category`; exports without it are recognized by their fields. */
function kindOf(fields: JsonObject): Kind | null {
  const category = asText(fields.category).slice(0, CATEGORY_LENGTH_MAX).toLowerCase();
  if (category === 'applicationgatewayfirewalllog') return 'gateway rule';
  if (category === 'frontdoorwebapplicationfirewalllog') return 'front door rule';
  if (category === 'applicationgatewayaccesslog' || category === 'frontdooraccesslog') return 'request';
  if (category !== '') return null;
  const properties = asObject(fields.properties) ?? {};
  if ('ruleName' in properties && 'trackingReference' in properties) return 'front door rule';
  return 'ruleId' in properties && 'transactionId' in properties ? 'gateway rule' : null;
}

const CATEGORY_LENGTH_MAX = 64;

function parseAzure(fields: JsonObject, { zone }: Context): Reading {
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
}

/** `action`: Matched for a rule that adds to the score, Blocked or Detected for the verdict and for rules without a score. */
function gatewayRule(properties: JsonObject, time: number): Reading {
  const id = asText(properties.ruleId);
  const action = lower(properties.action);
  if (id === '' || action === '') return dropped('bad_record');
  if (action.startsWith('allow')) return dropped('not_an_attack');
  const ruleSet = asText(properties.ruleSetType);
  const version = asText(properties.ruleSetVersion);
  const group = asText(properties.ruleGroup);
  const file = asText(asObject(properties.details)?.file).slice(-FILE_LENGTH_MAX);
  return ruleHit(properties, time, {
    id: asText(properties.transactionId),
    host: firstText(properties, ['hostname', 'host']),
    rule: isCustom(ruleSet) ? customRule(id) : managedRule(id, ruleSet, version, group, file),
    blocked: action.startsWith('block'),
  });
}

const FILE_LENGTH_MAX = 128;

function isCustom(ruleSet: string): boolean {
  return ruleSet === '' || /^custom/i.test(ruleSet);
}

/** `Microsoft_DefaultRuleSet-2.1-SQLI-942100`, or the name of a custom rule. */
function frontDoorRule(properties: JsonObject, time: number): Reading {
  const name = asText(properties.ruleName).slice(0, NAME_LENGTH_MAX);
  const action = lower(properties.action);
  if (name === '' || action === '') return dropped('bad_record');
  if (!isFrontDoorAttack(action)) return dropped('not_an_attack');
  const [, ruleSet = '', version = '', group = '', id = ''] = MANAGED_NAME.exec(name) ?? [];
  const isWatching = action === 'log' || action.includes('scor') || action.endsWith('pass');
  return ruleHit(properties, time, {
    id: asText(properties.trackingReference),
    host: firstText(properties, ['host', 'hostName']) ?? hostOfUrl(asText(properties.requestUri)),
    rule: id === '' ? customRule(name) : managedRule(id, ruleSet, version, group, ''),
    // In detection mode the log names the action that prevention mode would have taken.
    blocked: !isWatching && lower(properties.policyMode) !== 'detection',
  });
}

const NAME_LENGTH_MAX = 256;
const MANAGED_NAME = /^(\w*RuleSet)-([\d.]+(?:[_-]preview[\d.]*)?)-(.+)-([A-Za-z]*\d+)$/;

/** Allowed, or a challenge that the client has passed before. */
function isFrontDoorAttack(action: string): boolean {
  return !action.startsWith('allow') && !/(?:challenge|captcha)(?:valid|active)$/.test(action);
}

function managedRule(id: string, ruleSet: string, version: string, group: string, file: string): Rule {
  // The numbers of CRS 2 meant other things.
  if (isCrsId(id) && !version.startsWith('2.2.')) return crsRule(id, file);
  const byGroup = categoryOfName(AZURE_GROUPS, group) ?? categoryOfName(AZURE_GROUPS, ruleSet);
  if (byGroup !== null) return namedRule(id, byGroup, `rule group ${group || ruleSet}`);
  return namedRule(id, AZURE_MANAGED_RULE, 'a managed rule');
}

function customRule(name: string): Rule {
  if (AZURE_RATE_LIMIT.name.test(name)) {
    return namedRule(name, AZURE_RATE_LIMIT.category, 'a rate limit by its name');
  }
  return namedRule(name, CUSTOM_RULE, 'a custom rule');
}

interface Hit {
  id: string;
  host: string | undefined;
  rule: Rule;
  blocked: boolean;
}

function ruleHit(properties: JsonObject, time: number, { id, host, rule, blocked }: Hit): Reading {
  const details = attackDetails({
    blocked,
    source: firstText(properties, ['clientIp', 'clientIP', 'socketIP']),
    url: asText(properties.requestUri),
    country: firstText(properties, ['clientCountry', 'country']),
  });
  const transaction = { id, time, host, rules: [rule], details };
  return id === ''
    ? { kind: 'transaction', transaction }
    : { kind: 'hit', hit: { ...transaction, written: time, connection: '' } };
}

function accessRecord(properties: JsonObject, time: number): Reading {
  // Front Door asks its own cache in another place: the request of the client has an object of its own.
  if (lower(properties.isReceivedFromClient) === 'false' || properties.isReceivedFromClient === false) {
    return dropped('same_request');
  }
  const host =
    firstText(properties, ['originalHost', 'hostName', 'host']) ?? hostOfUrl(asText(properties.requestUri));
  return { kind: 'record', record: request(time, host) };
}

function lower(value: unknown): string {
  return asText(value).slice(0, CATEGORY_LENGTH_MAX).toLowerCase();
}
