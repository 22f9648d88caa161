/**
 * Paranoia levels of the rules of CRS 3.3 and 4, for logs without tags (ModSecurity 3.0.9 writes `"tags": []`).
 * Rules that are not listed are of level 1, as most are.
 */

/** By the file of a rule (`942`), the last three digits of its ID. */
type RulesOfLevel = Readonly<Record<string, readonly number[]>>;

const LEVELS: readonly (readonly [level: number, rules: RulesOfLevel])[] = [
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

/** `ver` is the version of the rule set as the log has it: `OWASP_CRS/4.7.0`. */
export function paranoiaLevelOfRule(id: string, ver: string): number {
  const moved = MOVED.get(id);
  if (moved !== undefined) return moved[ver.startsWith('OWASP_CRS/4') ? 1 : 0];
  return LEVEL_OF_RULE.get(id) ?? 1;
}
