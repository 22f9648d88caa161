/** Categories by the names that vendors give to rules and attacks. A name may end with `*`; the first match counts. */
import type { Category } from '../../event.ts';

export interface NameRow {
  category: Category;
  names: readonly string[];
}

/** Tables by name, and the categories of names that are in no table. */
type VendorTables = Record<string, Category | { category: Category; name: RegExp } | readonly Row[]>;
type Row = NameRow | { category: Category; from: number; to: number };

/** The category of a vendor's name. Ignores case, because labels and rules differ in it. */
export function categoryOfName(table: readonly NameRow[], name: string): Category | null {
  const lower = name.slice(0, NAME_LENGTH_MAX).toLowerCase();
  for (const { category, names } of table) {
    for (const pattern of names) if (matches(pattern.toLowerCase(), lower)) return category;
  }
  return null;
}

/** The category of the first word or phrase of the table that occurs in the text. */
export function categoryOfWords(table: readonly NameRow[], text: string): Category | null {
  // Anything but letters and digits separates words, so `SQLi - Comparison` equals `sqli_comparison`.
  const words = ` ${text
    .slice(0, NAME_LENGTH_MAX)
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')} `;
  for (const { category, names } of table) {
    for (const name of names) if (words.includes(` ${name} `)) return category;
  }
  return null;
}

/** Names in logs can have any length; those in the tables are shorter. */
const NAME_LENGTH_MAX = 256;

function matches(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

export const LTS = {
  /** Values of `attack`, which may also be one of the 13 categories. */
  attacks: [
    { category: 'cmdi', names: ['rce'] },
    { category: 'lfi', names: ['ptr'] },
    { category: 'custom', names: ['custom_custom'] },
    {
      category: 'whiteblackip',
      names: [
        'custom_whiteblackip',
        'custom_whiteip',
        'custom_blackip',
        'custom_geoip',
        'custom_idc_ip',
        'iprank',
      ],
    },
    { category: 'cc', names: ['default_cc'] },
    {
      category: 'robot',
      names: ['anticrawler', 'custom_robot', 'botm', 'advanced_bot', 'third_bot_river', 'antiscan_*'],
    },
    { category: 'vuln', names: ['default', 'leakage', 'antileakage', 'followed_action', 'llm_*'] },
  ],
  unknown: 'vuln',
} satisfies VendorTables;

export const AWS = {
  /** Names of rules, which are also the last part of their labels. */
  rules: [
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
  ],
  /** Managed rule groups, by the name in their labels and by the group's name. */
  groups: [
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
  ],
  /** Conditions of rule statements, and types of rules. */
  conditions: [
    { category: 'sqli', names: ['SQL_INJECTION'] },
    { category: 'xss', names: ['XSS'] },
    { category: 'cc', names: ['RATE_BASED'] },
  ],
  /** AWS WAF does not log that a rule matched an IP set, but the names of such rules often say so. */
  ipSet: { category: 'whiteblackip', name: /ip[-_ ]?set/i },
  managedRule: 'vuln',
  /** The log of a load balancer says that AWS WAF refused the request, but not why. */
  albRefused: 'vuln',
} satisfies VendorTables;

export const CLOUDFLARE = {
  /** Words in descriptions of managed rules, in lower case with single spaces. The most specific come first. */
  words: [
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
      names: [
        'lfi',
        'file inclusion',
        'directory traversal',
        'path traversal',
        'traversal',
        'file disclosure',
      ],
    },
    { category: 'cc', names: ['dos', 'ddos', 'flood', 'rate limit', 'rate limiting'] },
    { category: 'robot', names: ['bot', 'bots', 'scanner', 'crawler', 'scraper', 'scraping'] },
    {
      category: 'illegal',
      names: ['anomaly', 'invalid', 'malformed', 'protocol', 'request smuggling', 'method'],
    },
  ],
  /** The product that matched (`Source`, `SecuritySources`). Managed rules go by their description instead. */
  sources: [
    { category: 'cc', names: ['ratelimit', 'l7ddos'] },
    { category: 'custom', names: ['firewallrules', 'firewallcustom'] },
    {
      category: 'whiteblackip',
      // The security level blocks addresses by their reputation.
      names: ['ip', 'iprange', 'country', 'asn', 'zonelockdown', 'securitylevel'],
    },
    { category: 'robot', names: ['botfight', 'botmanagement', 'uablock', 'bic'] },
    { category: 'illegal', names: ['validation', 'sanitycheck', 'protocol', 'hot', 'apishield*'] },
  ],
  /** Scores from 1 (attack) to 99, for managed rules with an unknown description. Up to 20 is an attack. */
  scores: [
    { category: 'sqli', names: ['WAFSQLiAttackScore'] },
    { category: 'xss', names: ['WAFXSSAttackScore'] },
    { category: 'cmdi', names: ['WAFRCEAttackScore'] },
  ],
  managedRule: 'vuln',
} satisfies VendorTables;

export const AZURE = {
  /** Rule groups and rule sets other than CRS, whose rules are classified by their ID. */
  groups: [
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
  ],
  managedRule: 'vuln',
  /** Azure does not log that a custom rule limits the rate, but the names of such rules often say so. */
  rateLimit: { category: 'cc', name: /rate[-_ ]?limit/i },
} satisfies VendorTables;

export const CLOUD_ARMOR = {
  /** `id` and last part of expressions outside CRS, such as `owasp-crs-v030001-id044228-cve`. */
  expressions: [
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
  ],
  managedRule: 'vuln',
  /** Other fields of the matched rule in a log entry, and the action of reCAPTCHA. */
  matches: [
    { category: 'cc', names: ['rateLimitAction', 'adaptiveProtection'] },
    { category: 'whiteblackip', names: ['threatIntelligence', 'addressGroup'] },
    { category: 'robot', names: ['GOOGLE_RECAPTCHA'] },
  ],
} satisfies VendorTables;

export const NAXSI = {
  /** The scores of its core rules. */
  scores: [
    { category: 'sqli', names: ['$SQL', '$LIBINJECTION_SQL'] },
    { category: 'xss', names: ['$XSS', '$LIBINJECTION_XSS'] },
    { category: 'rfi', names: ['$RFI'] },
    { category: 'lfi', names: ['$TRAVERSAL'] },
    { category: 'webshell', names: ['$UPLOAD'] },
    { category: 'illegal', names: ['$EVADE'] },
    { category: 'robot', names: ['$UWA'] },
    { category: 'vuln', names: ['$ATTACK'] },
  ],
  /** Internal rules, which block without a score, and the core rules. Any other rule is a custom rule. */
  rules: [
    { category: 'sqli', from: 17, to: 17 },
    { category: 'xss', from: 18, to: 18 },
    { category: 'illegal', from: 1, to: 999 },
    { category: 'sqli', from: 1_000, to: 1_099 },
    { category: 'rfi', from: 1_100, to: 1_199 },
    { category: 'lfi', from: 1_200, to: 1_299 },
    { category: 'xss', from: 1_300, to: 1_399 },
    { category: 'illegal', from: 1_400, to: 1_499 },
    { category: 'webshell', from: 1_500, to: 1_599 },
  ],
} satisfies VendorTables;
