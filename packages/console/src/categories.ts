/** The order in which categories of attacks are shown. */
import { ATTACK_TYPES, type AttackType, type AttackTypes } from '@wafstat/client';

/** Most attacks first. Sorting is stable, so equal counts stay in the order of the API. */
export function byAttacks(counts: AttackTypes): AttackType[] {
  return ATTACK_TYPES.toSorted((a, b) => counts[b] - counts[a]);
}
