/** Names for people: categories of attacks, and rules of the OWASP Core Rule Set with the place where they are defined. */
import type { AttackType } from './client.ts';

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

const RULES_URL = 'https://raw.githubusercontent.com/coreruleset/coreruleset/main/rules';

/**
 * What the rules look for, in short words, by the first three digits of their IDs: the name of the file, then the last three
 * digits of rules with the same name, and the name.
 */
const NAMES: Readonly<Record<string, string>> = {
  910: 'IP reputation: 000=Known malicious address; 100=Country with a high risk; 150 160 170 180=Listed address',
  911: 'Method: 100=Method not allowed',
  912: 'Denial of service: 120=Too many requests; 170 171=Many requests',
  913: `Scanner: 100=Security scanner by user agent; 101=Scripting client by user agent; 102=Crawler by user agent;
    110=Security scanner by header; 120=Security scanner by file or argument`,
  920: `Protocol: 100=Invalid request line; 120 121=Multipart bypass; 160=Content-Length is not a number;
    170=GET or HEAD with a body; 171=GET or HEAD with Transfer-Encoding; 180=POST without a length;
    181=Length and Transfer-Encoding; 190=Range: invalid last byte; 200=Range: too many fields;
    201 202=Range: too many fields for a PDF; 210=Conflicting Connection headers;
    220 221=Abuse of URL encoding; 230=Multiple URL encoding; 240=Abuse of URL encoding in the body;
    250=Abuse of UTF-8 encoding; 260=Full-width Unicode; 270=Invalid character: null;
    271 272=Invalid character: not printable; 273=Invalid character: strict set;
    274 275=Invalid character in a header; 280=No Host header; 290=Empty Host header; 300=No Accept header;
    310 311=Empty Accept header; 320=No User-Agent header; 330=Empty User-Agent header;
    340 341=Body without a Content-Type; 350=Host is an IP address; 360=Argument name too long;
    370=Argument too long; 380=Too many arguments; 390=Arguments too long together;
    400=Uploaded file too large; 410=Uploaded files too large; 420=Content-Type not allowed;
    430=HTTP version not allowed; 440=File extension not allowed; 450 451=Header not allowed;
    460=Abnormal escape characters; 470=Invalid Content-Type; 480=Charset not allowed; 490=x-up-devcap-post-charset header;
    500=Backup or working file; 510=Invalid Cache-Control; 520=Accept-Encoding too long;
    521=Invalid Accept-Encoding; 530=Several charsets; 540=Unicode escape bypass; 600=Invalid Accept header;
    610=Raw fragment in the URI; 620=Several Content-Types`,
  921: `Protocol attack: 110=Request smuggling; 120 130=Response splitting; 140=Header injection;
    150 151 160=Header injection by argument; 180=Parameter pollution;
    190=Response splitting by file name; 200=LDAP injection; 210 220=Parameter pollution by array; 230=Range header; 240=mod_proxy attack; 250=Old cookie syntax;
    421 422=Dangerous Content-Type`,
  922: `Multipart: 100=Multipart charset not allowed; 110=Invalid multipart Content-Type; 120=Content-Transfer-Encoding;
    130=Invalid multipart header`,
  930: `File access: 100=Path traversal, encoded; 110=Path traversal; 120=Operating system file;
    121=Operating system file in a header; 130=Restricted file; 140=AI assistant file`,
  931: `Remote file: 100=Remote file by IP address; 110=Remote file by known parameter; 120=Remote file with trailing ?;
    130 131=Remote file on another domain`,
  932: `Command injection: 100 105 106 231 238=Unix command injection; 110 115=Windows command injection; 120=PowerShell command;
    125=PowerShell alias; 130 131=Unix shell expression; 140=Windows FOR or IF command;
    150 250 260=Direct Unix command; 160=Unix shell code; 161 237=Unix shell code in a header;
    170 171=Shellshock; 175=Unix alias invocation; 180=Restricted file upload; 190=Wildcard bypass;
    200 205 206=Bypass technique; 210=SQLite system command; 220=Unix command after a pipe;
    230=Unix command, 2 to 3 letters; 235 236=Unix command without evasion; 239=Unix command in a header; 240=Unix command, evasion;
    300 301=SMTP command; 310 311=IMAP command; 320 321=POP3 command; 330 331=Shell history;
    370 371 380=Windows command`,
  933: `PHP: 100=PHP opening tag; 110 111=PHP file upload; 120=PHP configuration directive; 130 131 135=PHP variable;
    140=PHP stream; 150=PHP function, high risk; 151=PHP function, medium risk;
    152 153=PHP function, low risk; 160=PHP function call; 161=PHP function call, low risk;
    170=PHP object injection; 180 210 211=PHP variable function; 190=PHP closing tag; 200=PHP wrapper`,
  934: `Generic: 100 101=Node.js injection; 110=Request forgery to cloud metadata; 120=Request forgery by IP address;
    130 131=JavaScript prototype pollution; 140=Perl injection; 150=Ruby injection;
    160=Node.js denial of service; 170=PHP data scheme; 180=Template injection; 190=Request forgery to an internal host`,
  941: `Cross-site scripting: 100 101=XSS by libinjection; 110=XSS: script tag; 120=XSS: event handler; 130=XSS: attribute;
    140=XSS: JavaScript URI; 150=XSS: HTML attribute; 160=HTML injection; 170=XSS: attribute injection;
    180 181=XSS: script keyword; 190=XSS: style sheet; 200=XSS: VML frame; 210=XSS: obfuscated JavaScript;
    220=XSS: obfuscated VBScript; 230=XSS: embed tag; 240=XSS: import attribute; 250=XSS: meta tag;
    260=XSS: meta charset; 270=XSS: link tag; 280=XSS: base tag; 290=XSS: applet tag; 300=XSS: object tag;
    310=XSS: US-ASCII encoding; 320=HTML tag handler; 330 340=XSS: Internet Explorer; 350=XSS: UTF-7;
    360=XSS: JSFuck; 370=XSS: JavaScript global variable; 380=Template injection on the client;
    390=XSS: JavaScript method; 400=XSS: function without parentheses`,
  942: `SQL injection: 100 101=SQL injection by libinjection; 110=SQL injection: common test; 120=SQL operator;
    130 131=SQL tautology; 140=SQL: database names; 150 151 152=SQL function;
    160=Blind SQL: sleep or benchmark; 170=SQL: benchmark and sleep;
    180 260 340 520 521 522 540=SQL authentication bypass; 190=SQL: execution and information;
    200=MySQL comment; 210 310=Chained SQL injection; 220=SQL: integer overflow; 230=SQL condition;
    240=MySQL charset switch; 250=SQL: match, merge, execute; 251=SQL: having; 270=SQL: union select;
    280=SQL: pg_sleep, shutdown; 290=MongoDB injection; 300=MySQL comments and conditions;
    320 321=SQL: stored procedures; 330 370 490=SQL probing; 350=SQL: user functions, data changes;
    360 362=Concatenated SQL injection; 361=SQL: alter or union;
    420 421=Special characters in cookies; 430 431 432=Special characters in arguments; 440 441=SQL comment;
    450=SQL hex encoding; 460=Repeated special characters; 500=MySQL inline comment;
    510 511=SQL: backticks or quotes; 530=SQL query terminated; 550=SQL in JSON;
    560=MySQL scientific notation`,
  943: 'Session fixation: 100=Cookie set in HTML; 110=Session ID from another domain; 120=Session ID without a referrer',
  944: `Java: 100 130=Java: suspicious class; 110=Java: process spawn; 120 240=Java deserialization;
    140=Java file upload; 150 151 152=Log4j (Log4Shell); 200=Java serialized object;
    210=Java serialized object, Base64; 250=Java: suspicious method; 260=Java: class loader;
    300=Java: suspicious string, Base64`,
  949: 'Blocking: 110 111=Inbound score exceeded',
  950: 'Data leakage: 100=Response with an error of the server; 130=Directory listing; 140=Source code of a CGI script',
  951: `SQL errors: 220=SQL error of SQL Server; 230=SQL error of MySQL;
    240=SQL error of PostgreSQL`,
  952: 'Java errors: 100=Java source code; 110=Java errors',
  953: 'PHP errors: 100 101=PHP errors; 110 120=PHP source code',
  954: 'IIS errors: 100=IIS install location; 110=IIS application error; 120=IIS information; 130=IIS error',
  955: 'Web shells: 100=Web shell',
  956: 'Ruby errors: 100=Ruby errors',
  959: 'Blocking: 100 101=Outbound score exceeded',
  980: 'Score: 130=Inbound score; 140=Outbound score; 170=Anomaly scores',
};

/** `942100` is `SQL injection by libinjection`. A rule without a name of its own has that of its file; empty: not a rule of CRS. */
export function ruleName(id: string): string {
  const [, file = '', rule = ''] = /^(9\d\d)(\d{3})$/.exec(id) ?? [];
  const [group = '', names = ''] = NAMES[file]?.split(/: (.*)/s) ?? [];
  const own = names.split(';').find((entry) => entry.split('=')[0]?.trim().split(' ').includes(rule));
  return own?.split('=')[1] ?? group;
}

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
