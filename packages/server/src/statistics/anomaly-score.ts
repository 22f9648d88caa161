/** Rules that detect attacks, and what the Core Rule Set decides about a request without some of them (docs/tuning.md). */
import { POINTS_WITHOUT_SEVERITY, SEVERITY_POINTS } from '../event.ts';

/** A matched rule that detects attacks. */
export interface Match {
  rule: number;
  /** '' if the log does not name it. */
  variable: string;
  points: number;
}

export interface MatchedRequest {
  matches: readonly Match[];
  /** The inbound score in the log. */
  score: number | undefined;
}

/** Whether an exclusion removes nothing of a match, the variable from the rule, or the whole rule. */
export type Removal = 'nothing' | 'target' | 'rule';

export const THRESHOLD_DEFAULT = 5;
/** The default of CRS. The option is for requests, because rules about responses rarely have false positives. */
const OUTBOUND_THRESHOLD = 4;

/** Files of CRS that set up, decide and report: their rules detect nothing. */
const OTHER_FILES: readonly number[] = [900, 901, 905, 949, 959, 980, 999];

/** The number of a rule that detects attacks; 0 for other rules, and for those of firewalls that name their rules. */
export function detectingRule(id: string): number {
  if (!/^[1-9]\d{0,8}$/.test(id)) return 0;
  const rule = Number(id);
  return isCrs(rule) && OTHER_FILES.includes(fileOf(rule)) ? 0 : rule;
}

/** CRS decided that the request exceeds a threshold. */
export function isVerdict(id: string): boolean {
  return /^9[45]9\d{3}$/.test(id);
}

/** The first three digits. */
export function fileOf(rule: number): number {
  let file = rule;
  while (file >= 1_000) file = Math.floor(file / 10);
  return file;
}

function isCrs(rule: number): boolean {
  return rule >= 900_000 && rule <= 999_999;
}

/** CRS adds them up separately. */
function isOutbound(rule: number): boolean {
  return rule >= 950_000 && rule <= 959_999;
}

export function pointsOf(severity: string): number {
  return SEVERITY_POINTS[severity] ?? POINTS_WITHOUT_SEVERITY;
}

/** CRS rules that match a variable once for each transformation, up to four times. The log has one of these matches. */
const MULTI_MATCH: readonly number[] = [930110, 934100, 942100, 942130];
const HIDDEN_MATCHES_MAX = 3;

/**
 * Predicts whether the engine blocks the request, after an exclusion. `hidden`: whether matches that only the score shows stay, or
 * go with those that the exclusion removes. ModSecurity 3 logs a rule once, whatever number of variables it matched.
 */
export function isBlocked(
  request: MatchedRequest,
  threshold: number,
  removal: (match: Match) => Removal = () => 'nothing',
  hidden: 'stay' | 'go' = 'stay',
): boolean {
  const { matches, score } = request;
  let [listed, left, outbound, others] = [0, 0, 0, 0];
  /** How many of the hidden points the exclusion removes at most. */
  let gone = 0;
  let hasLeft = false;
  for (const match of matches) {
    const removed = removal(match);
    const points = removed === 'nothing' ? match.points : 0;
    if (isOutbound(match.rule)) outbound += points;
    else if (!isCrs(match.rule)) others += points;
    else {
      listed += match.points;
      left += points;
      if (removed !== 'rule') hasLeft = true;
      if (removed === 'nothing') continue;
      if (hidden === 'go') gone = Number.POSITIVE_INFINITY;
      else if (MULTI_MATCH.includes(match.rule)) gone += HIDDEN_MATCHES_MAX * match.points;
    }
  }
  const rest = hasLeft ? Math.max(0, (score ?? listed) - listed - gone) : 0;
  // Rules above the blocking paranoia level have no points.
  const inbound = Math.min(score ?? left, left) + rest;
  return inbound + others >= threshold || outbound >= OUTBOUND_THRESHOLD;
}
