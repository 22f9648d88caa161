/** The thirteen categories in words. */
import type { AttackType } from '@wafstat/client';

export const CATEGORY_NAMES: Readonly<Record<AttackType, string>> = {
  xss: 'Cross-site scripting',
  sqli: 'SQL injection',
  cmdi: 'Command injection',
  cc: 'Request floods (CC)',
  custom: 'Precise protection rules',
  illegal: 'Invalid requests',
  lfi: 'Local file inclusion',
  robot: 'Malicious crawlers',
  antitamper: 'Page tampering',
  rfi: 'Remote file inclusion',
  vuln: 'Other attacks',
  whiteblackip: 'Blacklist and whitelist',
  webshell: 'Webshells',
};
