import { expect, test } from 'vitest';
import { AWS_GROUPS, AWS_RULES, categoryOfName, LTS_TABLE } from './vendor-tables.ts';

test.each([
  [LTS_TABLE, 'custom_custom', 'custom'],
  [LTS_TABLE, 'custom_whiteip', 'whiteblackip'],
  [LTS_TABLE, 'antiscan_dir_traversal', 'robot'],
  [LTS_TABLE, 'llm_prompt_injection', 'vuln'],
  [LTS_TABLE, 'never_heard_of', null],
  [AWS_RULES, 'CrossSiteScripting_BODY', 'xss'],
  [AWS_RULES, 'SQLiExtendedPatterns_Body', 'sqli'],
  [AWS_RULES, 'PROPFIND_METHOD', 'illegal'],
  [AWS_RULES, 'LFI_URIPath', 'lfi'],
  [AWS_RULES, 'constructor', null],
  [AWS_GROUPS, 'bot-control', 'robot'],
  [AWS_GROUPS, 'AWSManagedRulesAnonymousIpList', 'whiteblackip'],
])('a name matches exactly or by its prefix: %#', (table, name, want) => {
  expect(categoryOfName(table, name)).toBe(want);
});
