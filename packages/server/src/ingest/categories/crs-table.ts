/** How CRS rules map to categories: data that can be printed, documented and discussed. classify.ts applies it. */
import { type Category, SEVERITY_POINTS } from '../../event.ts';

/** Increase it whenever the category of a rule may change. */
export const TABLE_VERSION = 3;

/** The first of these that applies decides the category of a rule. */
export const EVIDENCE_ORDER = [
  'the override of the operator',
  'its id, if its version, file or tags say that it is a CRS rule (modsecurity.conf: the id alone)',
  'its tags',
  'its file',
  'otherwise it is a custom rule',
] as const;

interface CrsRow {
  /** Null for setup, scores and verdicts, which have no category. */
  category: Category | null;
  /** Rule IDs of the OWASP Core Rule Set: one rule, or a range like `942xxx`. */
  rules: readonly string[];
  /** Rule IDs of modsecurity.conf-recommended, which have no version or tag, in a file of any name. */
  engineRules?: readonly string[];
  tags?: readonly string[];
  /** The files of CRS, without directory and extension. Exact names, because operators have files with similar names. */
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

/** The category of rules that are not CRS rules. */
export const CUSTOM_RULE: Category = 'custom';

/** The points of a matched rule by its severity: words (ModSecurity 2, Coraza) or numbers (ModSecurity 3). */
export const POINTS: Readonly<Record<string, number>> = {
  ...SEVERITY_POINTS,
  2: 5,
  3: 4,
  4: 3,
  5: 2,
};

/** The category of an attack that only a verdict reports. */
export const UNKNOWN_ATTACK: Category = 'vuln';

/** How the category is chosen if rules of several categories matched. `explain` shows the step that decided. */
export const STEPS = [
  'A custom rule that denied the request wins unless the category of the next steps has more points than it.',
  'Payload categories (webshell, cmdi, sqli, xss, rfi, lfi) win over all others.',
  'Only rules of the lowest paranoia level that matched count. A vuln or robot rule of a lower level than every ' +
    'payload rule wins over them; if the payload rules only count special characters, any rule of a lower level does.',
  'A webshell rule among them wins; otherwise the category with the most points does.',
  'In a tie, cmdi wins, then the rule that matched first. Rules that look for words (932115, 932160, 932161, 932370) ' +
    'win no tie.',
  'If no rule has a category, the verdict counts: by the sums of CRS (980130, 980170), else as vuln.',
] as const;

/** Categories of malicious content. Rules of the other categories match most real attacks too. */
export const PAYLOAD_CATEGORIES: ReadonlySet<Category> = new Set([
  'webshell',
  'cmdi',
  'sqli',
  'xss',
  'rfi',
  'lfi',
]);

/** These win over payload rules of a higher paranoia level. `illegal` does not: its rules match too much. */
export const SPECIFIC_CONTEXT: ReadonlySet<Category> = new Set(['vuln', 'robot']);

/** The page of a web shell has scripts, and the request that plants one has code: those rules match too. */
export const DECISIVE: Category = 'webshell';

/** In a tie the most severe category wins: code execution includes everything else. */
export const TIE_WINNER: Category = 'cmdi';

/** Rules that only count special characters ("Restricted SQL Character Anomaly"). */
export const COUNTING_RULES: ReadonlySet<string> = new Set(
  '942420 942421 942430 942431 942432 942460'.split(' '),
);

/**
 * Rules that look for words. Some are also file names: `/etc/passwd` matches 932160. Some are also words of SQL: `sort`
 * and `time` match 932115, and 932370 of CRS 4.
 */
export const WORD_RULES: ReadonlySet<string> = new Set(['932115', '932160', '932161', '932370']);

/** The sums in 980130 and 980170, in the order that decides a tie. */
export const SUMS: readonly (readonly [category: Category, names: readonly string[]])[] = [
  ['cmdi', ['RCE', 'PHPI']],
  ['lfi', ['LFI']],
  ['rfi', ['RFI']],
  ['xss', ['XSS']],
  ['sqli', ['SQLI']],
];

/**
 * Paranoia levels of the rules of CRS 3.3 and 4, for logs without tags (ModSecurity 3.0.9 writes `"tags": []`): by file
 * (`942`), the last three digits of the rule IDs. All other rules are of level 1.
 */
const LEVELS: readonly (readonly [level: number, rules: Readonly<Record<string, readonly number[]>>])[] = [
  [
    2,
    {
      912: [171],
      913: [101, 102],
      920: [121, 200, 201, 230, 271, 320, 341, 451, 650],
      921: [151, 422],
      930: [121],
      931: [130, 131],
      932: [131, 161, 200, 205, 206, 207, 210, 220, 231, 236, 239, 240, 271, 281, 300, 310, 320, 371, 390],
      933: [151, 152, 153],
      934: [101, 120, 140, 180, 220],
      941: [101, 150, 181, 320, 330, 340, 380],
      942: [
        110, 120, 130, 131, 150, 152, 180, 200, 210, 260, 300, 310, 321, 330, 340, 361, 362, 370, 380, 390,
        400, 410, 430, 440, 450, 470, 480, 510, 520, 521, 522,
      ],
      944: [151, 200, 210, 240, 250, 260],
      950: [100],
      953: [101],
      954: [101],
      956: [110],
    },
  ],
  [
    3,
    {
      920: [272, 490, 510, 521],
      921: [170, 180, 210, 230],
      932: [106, 190, 232, 237, 238, 290, 301, 311, 321, 331, 350],
      933: [111, 131, 161, 190, 211],
      934: [210],
      942: [251, 420, 431, 460, 490, 511, 530],
      944: [300],
    },
  ],
  [4, { 920: [202, 273, 274, 275, 460], 921: [220], 942: [421, 432], 944: [152] }],
];

/** Rules that CRS 4 moved to another level: the level in CRS 3, and in CRS 4. */
const MOVED: ReadonlyMap<string, readonly [crs3: number, crs4: number]> = new Map([
  ['920240', [1, 2]],
  ['920300', [2, 3]],
  ['942101', [3, 2]],
]);

const LEVEL_OF_RULE: ReadonlyMap<string, number> = new Map(
  LEVELS.flatMap(([level, files]) =>
    Object.entries(files).flatMap(([file, rules]) => rules.map((rule) => [`${file}${rule}`, level] as const)),
  ),
);

/** `ver` is the version of the rule set in the log, such as `OWASP_CRS/4.7.0`. */
export function paranoiaLevelOfRule(id: string, ver: string): number {
  const moved = MOVED.get(id);
  if (moved !== undefined) return moved[ver.startsWith('OWASP_CRS/4') ? 1 : 0];
  return LEVEL_OF_RULE.get(id) ?? 1;
}
