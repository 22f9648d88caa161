import { expect, test } from 'vitest';
import { AWS, categoryOfName, LTS } from './vendor-tables.ts';

test.each([
  [LTS.attacks, 'custom_custom', 'custom'],
  [LTS.attacks, 'custom_whiteip', 'whiteblackip'],
  [LTS.attacks, 'antiscan_dir_traversal', 'robot'],
  [LTS.attacks, 'llm_prompt_injection', 'vuln'],
  [LTS.attacks, 'rce', 'cmdi'],
  [LTS.attacks, 'ptr', 'lfi'],
  [LTS.attacks, 'custom_robot', 'robot'],
  [LTS.attacks, 'anticrawler', 'robot'],
  [LTS.attacks, 'iprank', 'whiteblackip'],
  [LTS.attacks, 'custom_geoip', 'whiteblackip'],
  [LTS.attacks, 'custom_idc_ip', 'whiteblackip'],
  [LTS.attacks, 'antileakage', 'vuln'],
  [LTS.attacks, 'never_heard_of', null],
  [AWS.rules, 'CrossSiteScripting_BODY', 'xss'],
  [AWS.rules, 'SQLiExtendedPatterns_Body', 'sqli'],
  [AWS.rules, 'PROPFIND_METHOD', 'illegal'],
  [AWS.rules, 'LFI_URIPath', 'lfi'],
  [AWS.rules, 'constructor', null],
  [AWS.groups, 'bot-control', 'robot'],
  [AWS.groups, 'AWSManagedRulesAnonymousIpList', 'whiteblackip'],
])('a name matches exactly or by its prefix: %#', (table, name, want) => {
  expect(categoryOfName(table, name)).toBe(want);
});
