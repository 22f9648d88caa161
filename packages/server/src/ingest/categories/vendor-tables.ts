/** The categories of firewalls that name what they found themselves. A pattern may end with `*`; the first that fits counts. */
import type { Category } from '../../event.ts';

export interface NameRow {
  category: Category;
  names: readonly string[];
}

/** `attack` in the vendor's LTS logs. The thirteen categories stand for themselves; what is in no row is `vuln`. */
export const LTS_TABLE: readonly NameRow[] = [
  { category: 'custom', names: ['custom_custom', 'custom_geoip', 'custom_idc_ip'] },
  { category: 'whiteblackip', names: ['custom_whiteblackip', 'custom_whiteip', 'custom_blackip'] },
  { category: 'cc', names: ['default_cc'] },
  { category: 'robot', names: ['anticrawler', 'botm', 'advanced_bot', 'third_bot_river', 'antiscan_*'] },
  { category: 'vuln', names: ['default', 'leakage', 'followed_action', 'llm_*'] },
];
export const LTS_UNKNOWN: Category = 'vuln';

/** AWS WAF: names of rules, which are also the last part of the labels that they set. */
export const AWS_RULES: readonly NameRow[] = [
  { category: 'xss', names: ['CrossSiteScripting_*'] },
  { category: 'sqli', names: ['SQLi*'] },
  { category: 'lfi', names: ['GenericLFI_*', 'LFI_*'] },
  { category: 'rfi', names: ['GenericRFI_*'] },
  {
    category: 'cmdi',
    names: [
      'UNIXShell*',
      'WindowsShell*',
      'PowerShell*',
      'PHPHighRisk*',
      'Log4JRCE*',
      'JavaDeserializationRCE*',
      'ReactJSRCE*',
    ],
  },
  { category: 'robot', names: ['BadBots_*'] },
  { category: 'illegal', names: ['SizeRestrictions_*', 'NoUserAgent_*', 'Propfind_*'] },
];

/** AWS WAF: managed rule groups, by the name in their labels and by their own name. */
export const AWS_GROUPS: readonly NameRow[] = [
  { category: 'cc', names: ['anti-ddos', 'AWSManagedRulesAntiDDoSRuleSet'] },
  { category: 'robot', names: ['bot-control', 'AWSManagedRulesBotControlRuleSet'] },
  {
    category: 'whiteblackip',
    names: [
      'amazon-ip-list',
      'AWSManagedRulesAmazonIpReputationList',
      'anonymous-ip-list',
      'AWSManagedRulesAnonymousIpList',
    ],
  },
];

/** AWS WAF: what a rule's statement compared, and the types of rules. */
export const AWS_CONDITIONS: readonly NameRow[] = [
  { category: 'sqli', names: ['SQL_INJECTION'] },
  { category: 'xss', names: ['XSS'] },
  { category: 'cc', names: ['RATE_BASED'] },
];

/** AWS WAF does not log that a rule compared addresses with an IP set; people call such rules so. */
export const AWS_IP_SET: { category: Category; name: RegExp } = {
  category: 'whiteblackip',
  name: /ip[-_ ]?set/i,
};
export const AWS_MANAGED_RULE: Category = 'vuln';
