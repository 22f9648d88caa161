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

/** Words in the descriptions of managed rules, in lower case with single spaces. The most telling ones come first. */
export const ATTACK_WORDS: readonly NameRow[] = [
  { category: 'webshell', names: ['webshell', 'web shell', 'backdoor', 'malicious upload', 'malware'] },
  { category: 'sqli', names: ['sqli', 'sql injection', 'nosql injection'] },
  { category: 'xss', names: ['xss', 'cross site scripting', 'html injection', 'script injection'] },
  { category: 'rfi', names: ['rfi', 'remote file inclusion'] },
  {
    category: 'cmdi',
    names: [
      'rce',
      'remote code execution',
      'remote code exec',
      'command injection',
      'code injection',
      'command execution',
      'code execution',
      'php injection',
      'template injection',
      'ssti',
      'deserialization',
      'log4j',
      'log4shell',
      'shellshock',
      'spring4shell',
      'react2shell',
    ],
  },
  {
    category: 'lfi',
    names: ['lfi', 'file inclusion', 'directory traversal', 'path traversal', 'traversal', 'file disclosure'],
  },
  { category: 'cc', names: ['dos', 'ddos', 'flood', 'rate limit', 'rate limiting'] },
  { category: 'robot', names: ['bot', 'bots', 'scanner', 'crawler', 'scraper', 'scraping'] },
  {
    category: 'illegal',
    names: ['anomaly', 'invalid', 'malformed', 'protocol', 'request smuggling', 'method'],
  },
];

/** Cloudflare: the product that matched (`Source`, `SecuritySources`). Managed rules go by their description instead. */
export const CLOUDFLARE_SOURCES: readonly NameRow[] = [
  { category: 'cc', names: ['ratelimit', 'l7ddos'] },
  { category: 'custom', names: ['firewallrules', 'firewallcustom'] },
  {
    category: 'whiteblackip',
    // The security level blocks addresses by their reputation.
    names: ['ip', 'iprange', 'country', 'asn', 'zonelockdown', 'securitylevel'],
  },
  { category: 'robot', names: ['botfight', 'botmanagement', 'uablock', 'bic'] },
  { category: 'illegal', names: ['validation', 'sanitycheck', 'protocol', 'hot', 'apishield*'] },
];

/** Cloudflare: scores from 1 (an attack) to 99 of managed rules whose description says nothing; up to 20 is an attack. */
export const CLOUDFLARE_SCORES: readonly NameRow[] = [
  { category: 'sqli', names: ['WAFSQLiAttackScore'] },
  { category: 'xss', names: ['WAFXSSAttackScore'] },
  { category: 'cmdi', names: ['WAFRCEAttackScore'] },
];
export const CLOUDFLARE_MANAGED_RULE: Category = 'vuln';

/** Azure: rule groups and rule sets beside those of CRS, whose rules go by their numbers. */
export const AZURE_GROUPS: readonly NameRow[] = [
  { category: 'webshell', names: ['MS-ThreatIntel-WebShells'] },
  { category: 'sqli', names: ['MS-ThreatIntel-SQLI'] },
  { category: 'xss', names: ['MS-ThreatIntel-XSS'] },
  // Its rules look for `/.././../` in headers and bodies.
  { category: 'lfi', names: ['MS-ThreatIntel-AppSec'] },
  // Log4Shell and Spring4Shell.
  { category: 'cmdi', names: ['Known-CVEs'] },
  { category: 'illegal', names: ['General'] },
  {
    category: 'robot',
    names: ['BadBots', 'GoodBots', 'UnknownBots', 'KnownBadBots', 'Microsoft_BotManagerRuleSet*'],
  },
  { category: 'cc', names: ['ExcessiveRequests', 'Microsoft_HTTPDDoSRuleSet*'] },
  { category: 'vuln', names: ['MS-ThreatIntel-*'] },
];
export const AZURE_MANAGED_RULE: Category = 'vuln';

/** Azure does not log that a custom rule limits rates; people call such rules so. */
export const AZURE_RATE_LIMIT: { category: Category; name: RegExp } = {
  category: 'cc',
  name: /rate[-_ ]?limit/i,
};

/** Google Cloud Armor: `id` and last part of expressions that are none of CRS, such as `owasp-crs-v030001-id044228-cve`. */
export const CLOUD_ARMOR_EXPRESSIONS: readonly NameRow[] = [
  // Log4Shell.
  { category: 'cmdi', names: ['id044228', 'id144228', 'id244228', 'id344228'] },
  { category: 'sqli', names: ['sqli'] },
  { category: 'xss', names: ['xss'] },
  { category: 'lfi', names: ['lfi'] },
  { category: 'rfi', names: ['rfi'] },
  { category: 'cmdi', names: ['rce', 'php', 'java', 'nodejs', 'generic'] },
  { category: 'robot', names: ['scannerdetection'] },
  { category: 'illegal', names: ['methodenforcement'] },
  { category: 'vuln', names: ['protocolattack', 'sessionfixation', 'cve'] },
];
export const CLOUD_ARMOR_MANAGED_RULE: Category = 'vuln';

/** Google Cloud Armor: what else a log entry says of the rule that matched, and the action of reCAPTCHA. */
export const CLOUD_ARMOR_MATCHES: readonly NameRow[] = [
  { category: 'cc', names: ['rateLimitAction', 'adaptiveProtection'] },
  { category: 'whiteblackip', names: ['threatIntelligence', 'addressGroup'] },
  { category: 'robot', names: ['GOOGLE_RECAPTCHA'] },
];

/** NAXSI: the scores of its core rules. */
export const NAXSI_SCORES: readonly NameRow[] = [
  { category: 'sqli', names: ['$SQL', '$LIBINJECTION_SQL'] },
  { category: 'xss', names: ['$XSS', '$LIBINJECTION_XSS'] },
  { category: 'rfi', names: ['$RFI'] },
  { category: 'lfi', names: ['$TRAVERSAL'] },
  { category: 'webshell', names: ['$UPLOAD'] },
  { category: 'illegal', names: ['$EVADE'] },
  { category: 'robot', names: ['$UWA'] },
  { category: 'vuln', names: ['$ATTACK'] },
];

export interface RangeRow {
  category: Category;
  from: number;
  to: number;
}

/** NAXSI: internal rules, which block without a score, and the core rules. Any other rule is a custom one. */
export const NAXSI_RULES: readonly RangeRow[] = [
  { category: 'sqli', from: 17, to: 17 },
  { category: 'xss', from: 18, to: 18 },
  { category: 'illegal', from: 1, to: 999 },
  { category: 'sqli', from: 1_000, to: 1_099 },
  { category: 'rfi', from: 1_100, to: 1_199 },
  { category: 'lfi', from: 1_200, to: 1_299 },
  { category: 'xss', from: 1_300, to: 1_399 },
  { category: 'illegal', from: 1_400, to: 1_499 },
  { category: 'webshell', from: 1_500, to: 1_599 },
];

/** AWS ALB: the log says that AWS WAF refused the request, not why. */
export const ALB_REFUSED: Category = 'vuln';
