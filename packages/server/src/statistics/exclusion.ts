/**
 * Exclusions for ModSecurity 2, ModSecurity 3 and Coraza. Hosts, paths and names of variables come from attackers: in an
 * expression everything unusual is escaped, and names that no directive can have are not used.
 */
import { literalExpression, patternExpression } from './path-pattern.ts';

/** Rules no longer look at a variable, or do not run, on a host and a path. */
export interface Exclusion {
  /** Null: all hosts. */
  host: string | null;
  /** See `pathPattern`. */
  path: string;
  /** '' if the log does not name it. */
  variable: string;
  rules: readonly number[];
}

/** The collections and variables that an exclusion can name. Of a collection, only one member is narrow. */
const COLLECTIONS = [
  ...['ARGS', 'ARGS_GET', 'ARGS_POST', 'ARGS_NAMES', 'ARGS_GET_NAMES', 'ARGS_POST_NAMES'],
  ...['REQUEST_HEADERS', 'REQUEST_COOKIES', 'REQUEST_COOKIES_NAMES', 'FILES', 'FILES_NAMES'],
];
const VARIABLES = [
  ...['REQUEST_URI', 'REQUEST_URI_RAW', 'REQUEST_LINE', 'REQUEST_FILENAME', 'REQUEST_BASENAME'],
  ...['REQUEST_METHOD', 'REQUEST_PROTOCOL', 'REQUEST_BODY', 'QUERY_STRING', 'PATH_INFO', 'RESPONSE_BODY'],
];
/** What the grammar of ModSecurity 3 allows, without the characters of its own. */
const MEMBER = /^[0-9A-Za-z_.$[\]-]{1,100}$/;

/** Chains of CRS: the log names the variable of the last rule, but only the first one has an ID for an exclusion. */
const CHAINS = new Set([
  ...[920170, 920171, 920180, 920181, 920190, 920200, 920201, 920202, 920220, 920240, 920250, 920300],
  ...[920310, 920311, 920340, 920341, 920360, 920370, 920380, 920390, 920400, 920410, 920420, 920440],
  ...[920450, 920480, 920490, 920510, 921180, 922100, 943110, 943120, 944110],
]);

/** The variable that the first rule of a chain looked at, if the last one names it: `TX:rfi_parameter_ARGS:q`. */
const WITHIN = /^(?:TX:\/?rfi_parameter_|MATCHED_VARS?:)(?=[A-Z])/i;

/** The variable of a match, as an exclusion names it. */
export function targetVariable(logged: string): string {
  return logged.replace(WITHIN, '');
}

/** Whether the exclusion can name the variable. Otherwise it removes the whole rule. */
export function hasTarget(rule: number, variable: string): boolean {
  if (CHAINS.has(rule)) return false;
  const colon = variable.indexOf(':');
  if (colon === -1) return VARIABLES.includes(variable);
  return COLLECTIONS.includes(variable.slice(0, colon)) && MEMBER.test(variable.slice(colon + 1));
}

/** `comments`: lines that say why. */
export function exclusionText(exclusion: Exclusion, id: number, comments: readonly string[]): string {
  const { host, path, variable, rules } = exclusion;
  const removals = rules.map((rule) =>
    hasTarget(rule, variable) ? `ctl:ruleRemoveTargetById=${rule};${variable}` : `ctl:ruleRemoveById=${rule}`,
  );
  const pathRule = `SecRule REQUEST_FILENAME "@rx ^${patternExpression(path)}$"`;
  const lines = comments.map((comment) => `# ${commentText(comment)}`);
  if (host === null) lines.push(`${pathRule} "id:${id},phase:1,pass,t:none,nolog,${removals.join()}"`);
  else {
    // The name as it is registered: in lower case, without a port and a final dot.
    const name = `^(?i:${literalExpression(host)})\\.?(?::[0-9]*)?$`;
    lines.push(`SecRule REQUEST_HEADERS:Host "@rx ${name}" "id:${id},phase:1,pass,t:none,nolog,chain"`);
    lines.push(`    ${pathRule} "t:none,${removals.join()}"`);
  }
  return `${lines.join('\n')}\n`;
}

const COMMENT_LENGTH_MAX = 400;

/** One line that ends the comment: a backslash at its end would continue it on the next line. */
function commentText(text: string): string {
  const plain = text.replace(/[^\x20-\x7e]|\\/gu, (character) =>
    Buffer.from(character).toString('hex').toUpperCase().replace(/../g, '%$&'),
  );
  return plain.length > COMMENT_LENGTH_MAX ? `${plain.slice(0, COMMENT_LENGTH_MAX)}...` : plain;
}
