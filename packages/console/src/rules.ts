/** Rules of the OWASP Core Rule Set. */

const RULES_URL = 'https://raw.githubusercontent.com/coreruleset/coreruleset/main/rules';

/** By the first three digits of the rule ID. */
const FILES: Readonly<Record<string, string>> = {
  911: 'REQUEST-911-METHOD-ENFORCEMENT',
  913: 'REQUEST-913-SCANNER-DETECTION',
  920: 'REQUEST-920-PROTOCOL-ENFORCEMENT',
  921: 'REQUEST-921-PROTOCOL-ATTACK',
  922: 'REQUEST-922-MULTIPART-ATTACK',
  930: 'REQUEST-930-APPLICATION-ATTACK-LFI',
  931: 'REQUEST-931-APPLICATION-ATTACK-RFI',
  932: 'REQUEST-932-APPLICATION-ATTACK-RCE',
  933: 'REQUEST-933-APPLICATION-ATTACK-PHP',
  934: 'REQUEST-934-APPLICATION-ATTACK-GENERIC',
  941: 'REQUEST-941-APPLICATION-ATTACK-XSS',
  942: 'REQUEST-942-APPLICATION-ATTACK-SQLI',
  943: 'REQUEST-943-APPLICATION-ATTACK-SESSION-FIXATION',
  944: 'REQUEST-944-APPLICATION-ATTACK-JAVA',
  949: 'REQUEST-949-BLOCKING-EVALUATION',
  950: 'RESPONSE-950-DATA-LEAKAGES',
  951: 'RESPONSE-951-DATA-LEAKAGES-SQL',
  952: 'RESPONSE-952-DATA-LEAKAGES-JAVA',
  953: 'RESPONSE-953-DATA-LEAKAGES-PHP',
  954: 'RESPONSE-954-DATA-LEAKAGES-IIS',
  955: 'RESPONSE-955-WEB-SHELLS',
  956: 'RESPONSE-956-DATA-LEAKAGES-RUBY',
  959: 'RESPONSE-959-BLOCKING-EVALUATION',
};

/** The definition of a rule, with its message and comments. The fragment makes browsers scroll to the rule. */
export function ruleUrl(id: string): string | null {
  const file = /^9\d{5}$/.test(id) ? FILES[id.slice(0, 3)] : undefined;
  return file === undefined ? null : `${RULES_URL}/${file}.conf#:~:text=id%3A${id}`;
}
