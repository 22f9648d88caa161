/** The names and the order in which categories of attacks are shown. */
import { ATTACK_TYPES, type AttackType, type AttackTypes, type Point, type Series } from '@wafstat/client';
import { total } from './points.ts';

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

/** The attacks of a category over time. */
export type AttackSeries = Series<AttackType>;

/** Most attacks first. Sorting is stable, so equal counts stay in the order of the API. */
export function byAttacks(counts: AttackTypes): AttackType[] {
  return ATTACK_TYPES.toSorted((a, b) => counts[b] - counts[a]);
}

/** The totals of the range, from its points. */
export function totalsOf(series: readonly AttackSeries[]): AttackTypes {
  const counts = ATTACK_TYPES.map((name) => [name, total(pointsOf(series, name).map(({ num }) => num))]);
  // The entries have every category.
  return Object.fromEntries(counts) as AttackTypes;
}

export function pointsOf(series: readonly AttackSeries[], name: AttackType): readonly Point[] {
  return series.find(({ key }) => key === name)?.timeline ?? [];
}
