/** Rules of firewalls that are not ModSecurity, in the form in which every matched rule is judged. */
import type { Category } from '../../event.ts';
import type { Rule } from '../categories/classify.ts';

/** A rule of the Core Rule Set that a vendor took over under its number. */
export function crsRule(id: string, file = ''): Rule {
  return { id, severity: 'critical', ver: 'OWASP_CRS/3', file, tags: [] };
}

/** A rule whose category the vendor's own names give. */
export function namedRule(id: string, category: Category, because: string): Rule {
  return {
    id: id.slice(0, TEXT_LENGTH_MAX),
    severity: 'critical',
    ver: '',
    file: '',
    tags: [],
    named: { category, because: because.slice(0, TEXT_LENGTH_MAX) },
  };
}

/** The number of a rule of CRS, verdicts over other rules among them. */
export function isCrsId(id: string): boolean {
  return /^9\d{5}$/.test(id);
}

/** Rules are kept until the rest of their request has come, so they are kept small. */
const TEXT_LENGTH_MAX = 128;
