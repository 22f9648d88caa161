/**
 * Which evidence puts an attack in which category: all of it, as data, so that it can be printed, documented and
 * argued about. How a rule is held against it stands in judge.ts.
 */
import type { Category } from '../../event.ts';

/** Raised whenever a rule may come out in another category than before. */
export const TABLE_VERSION = 2;

/** By which of these a rule is judged: the first that says something. */
export const EVIDENCE_ORDER = [
  'the choice of the operator',
  'its id, when its version, file or tags say that it is a rule of CRS (modsecurity.conf: the id alone)',
  'its tags',
  'its file',
  'it is an own rule',
] as const;

export interface CrsRow {
  /** Null: set-up, scores and verdicts, which have no category of their own. */
  category: Category | null;
  /** Rule ids of the OWASP Core Rule Set: one rule, or a thousand of them as in `942xxx`. */
  rules: readonly string[];
  /** Rule ids of modsecurity.conf-recommended. They have no version or tag, and its file has any name. */
  engineRules?: readonly string[];
  tags?: readonly string[];
  /** The files of CRS, without folder and ending. Exact names, because people call their own files alike. */
  files?: readonly string[];
}

export const CRS_TABLE: readonly CrsRow[] = [
  {
    category: null,
    rules: ['901xxx', '903xxx', '905xxx', '949xxx', '959xxx', '980xxx'],
    files: [
      'REQUEST-901-INITIALIZATION',
      'REQUEST-905-COMMON-EXCEPTIONS',
      'REQUEST-949-BLOCKING-EVALUATION',
      'RESPONSE-959-BLOCKING-EVALUATION',
      'RESPONSE-980-CORRELATION',
    ],
  },
  {
    // Tagged attack-rce by CRS; 9502xxx is its antivirus plugin.
    category: 'webshell',
    rules: ['955xxx', '933110', '933111', '944140', '9502xxx'],
    files: ['RESPONSE-955-WEB-SHELLS'],
  },
  {
    category: 'sqli',
    rules: ['942xxx'],
    tags: ['attack-sqli'],
    files: ['REQUEST-942-APPLICATION-ATTACK-SQLI'],
  },
  {
    category: 'cmdi',
    rules: ['932xxx', '933xxx', '934xxx', '944xxx'],
    tags: [
      'attack-rce',
      'attack-injection-php',
      'attack-injection-java',
      'attack-injection-nodejs',
      'attack-injection-generic',
      'attack-ssti',
    ],
    files: [
      'REQUEST-932-APPLICATION-ATTACK-RCE',
      'REQUEST-933-APPLICATION-ATTACK-PHP',
      'REQUEST-934-APPLICATION-ATTACK-NODEJS',
      'REQUEST-934-APPLICATION-ATTACK-GENERIC',
      'REQUEST-944-APPLICATION-ATTACK-JAVA',
    ],
  },
  {
    category: 'xss',
    rules: ['941xxx'],
    tags: ['attack-xss'],
    files: ['REQUEST-941-APPLICATION-ATTACK-XSS'],
  },
  {
    category: 'rfi',
    rules: ['931xxx'],
    tags: ['attack-rfi'],
    files: ['REQUEST-931-APPLICATION-ATTACK-RFI'],
  },
  {
    category: 'lfi',
    rules: ['930xxx'],
    tags: ['attack-lfi'],
    files: ['REQUEST-930-APPLICATION-ATTACK-LFI'],
  },
  {
    // 9514xxx is a plugin. The `limiting requests` lines of nginx count here too.
    category: 'cc',
    rules: ['912xxx', '9514xxx'],
    tags: ['attack-dos'],
    files: ['REQUEST-912-DOS-PROTECTION'],
  },
  {
    category: 'whiteblackip',
    rules: ['910xxx'],
    tags: ['attack-reputation-ip'],
    files: ['REQUEST-910-IP-REPUTATION'],
  },
  {
    // 9504xxx is a plugin.
    category: 'robot',
    rules: ['913xxx', '9504xxx'],
    tags: [
      'attack-reputation-scanner',
      'attack-reputation-crawler',
      'attack-reputation-scripting',
      'attack-bot',
    ],
    files: ['REQUEST-913-SCANNER-DETECTION'],
  },
  {
    category: 'vuln',
    rules: ['921xxx', '943xxx', '950xxx', '951xxx', '952xxx', '953xxx', '954xxx', '956xxx'],
    tags: ['attack-fixation', 'attack-disclosure', 'attack-ssrf'],
    files: [
      'REQUEST-921-PROTOCOL-ATTACK',
      'REQUEST-943-APPLICATION-ATTACK-SESSION-FIXATION',
      'RESPONSE-950-DATA-LEAKAGES',
      'RESPONSE-951-DATA-LEAKAGES-SQL',
      'RESPONSE-952-DATA-LEAKAGES-JAVA',
      'RESPONSE-953-DATA-LEAKAGES-PHP',
      'RESPONSE-954-DATA-LEAKAGES-IIS',
      'RESPONSE-956-DATA-LEAKAGES-RUBY',
    ],
  },
  {
    category: 'illegal',
    rules: ['911xxx', '920xxx', '922xxx'],
    engineRules: ['200000', '200001', '200002', '200003', '200004', '200005', '200006'],
    tags: ['attack-protocol', 'attack-multipart-header', 'attack-deprecated-header'],
    files: [
      'REQUEST-911-METHOD-ENFORCEMENT',
      'REQUEST-920-PROTOCOL-ENFORCEMENT',
      'REQUEST-922-MULTIPART-ATTACK',
    ],
  },
];

/** A rule that is none of CRS's. */
export const OWN_RULE: Category = 'custom';

/** What a matched rule adds to its category, as CRS scores: by word (ModSecurity 2, Coraza) or number (ModSecurity 3). */
export const POINTS: Readonly<Record<string, number>> = {
  critical: 5,
  error: 4,
  warning: 3,
  notice: 2,
  2: 5,
  3: 4,
  4: 3,
  5: 2,
};

/** A rule of CRS whose severity is missing or unknown: most are CRITICAL, and a cut message must not weigh less. */
export const POINTS_WITHOUT_SEVERITY = 5;

/** Set-up rules say nothing of a request; these say that it was an attack, but not of which kind. */
export const VERDICT_RULES: readonly string[] = ['949xxx', '959xxx'];

/** What an attack is that only a verdict tells of. */
export const UNKNOWN_ATTACK: Category = 'vuln';

/** How the category is chosen if rules of several categories matched. `explain` names the step that decided. */
export const STEPS = [
  'A custom rule that denied the request wins unless the category of the next steps has more points than it.',
  'Payload categories (webshell, cmdi, sqli, xss, rfi, lfi) win over all others.',
  'Only rules of the lowest paranoia level that matched count. A vuln or robot rule of a lower level than every ' +
    'payload rule wins over them; if the payload rules only count special characters, any rule of a lower level does.',
  'The category with the most points wins.',
  'In a tie, webshell and cmdi win, then the rule that matched first. A rule that looks for words (932160) wins no tie.',
  'If no rule has a category, the verdict counts: by the sums of CRS (980130, 980170), else as vuln.',
] as const;

/** Categories that the content of a request shows. Rules of the others match most real attacks too. */
export const PAYLOAD_CATEGORIES: ReadonlySet<Category> = new Set([
  'webshell',
  'cmdi',
  'sqli',
  'xss',
  'rfi',
  'lfi',
]);

/** They win against payload rules of a higher paranoia level. `illegal` does not: its rules match too much. */
export const SPECIFIC_CONTEXT: ReadonlySet<Category> = new Set(['vuln', 'robot']);

/** In a tie the most severe wins: code execution includes everything else. */
export const TIE_WINNERS: readonly Category[] = ['webshell', 'cmdi'];

/** Rules that count special characters ("Restricted SQL Character Anomaly"), whatever they mean. */
export const COUNTING_RULES: ReadonlySet<string> = new Set([
  '942420',
  '942421',
  '942430',
  '942431',
  '942432',
  '942460',
]);

/** Rules that look for words, which are the names of files too: `/etc/passwd` matches 932160. */
export const WORD_RULES: ReadonlySet<string> = new Set(['932160', '932161']);

/** The sums in 980130 and 980170, in the order that settles a tie. */
export const SUMS: readonly (readonly [category: Category, names: readonly string[]])[] = [
  ['cmdi', ['RCE', 'PHPI']],
  ['lfi', ['LFI']],
  ['rfi', ['RFI']],
  ['xss', ['XSS']],
  ['sqli', ['SQLI']],
];
