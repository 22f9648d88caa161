/** The names and the order in which categories of attacks are shown. */
import { ATTACK_TYPES, type AttackType, type AttackTypes } from '@wafstat/client';

export const CATEGORY_NAMES: Readonly<Record<AttackType, string>> = {
  xss: 'Cross-site scripting',
  sqli: 'SQL injection',
  cmdi: 'Command injection',
  cc: 'HTTP floods (CC)',
  custom: 'Custom rules',
  illegal: 'Invalid requests',
  lfi: 'Local file inclusion',
  robot: 'Malicious crawlers',
  antitamper: 'Page tampering',
  rfi: 'Remote file inclusion',
  vuln: 'Other',
  whiteblackip: 'IP allow/block lists',
  webshell: 'Web shells',
};

/** Most attacks first. Sorting is stable, so equal counts stay in the order of the API. */
export function byAttacks(counts: AttackTypes): AttackType[] {
  return ATTACK_TYPES.toSorted((a, b) => counts[b] - counts[a]);
}
