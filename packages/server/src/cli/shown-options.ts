/** The options of the running service that `ingest` and `follow` need as well, for the commands that the console shows. */
import { resolve } from 'node:path';
import { COUNTING_OPTIONS, LOCATION_OPTIONS, SERVER_OPTIONS } from '../config.ts';
import { parseDatabaseUrl } from '../postgres/url.ts';
import { flag, flagOf, type Given, type Options, REPEATED } from './options.ts';

/** Where the installation is, and which files it reads. */
const SHOWN_OPTIONS = { ...LOCATION_OPTIONS, categories: SERVER_OPTIONS.categories };

/** Without defaults and without a URL that contains a password. */
export function shownOptions(given: Given): { options: string[]; counting: string[] } {
  const safe: Given = (name) => {
    const text = given(name);
    return name === 'postgresUrl' && text !== undefined && hasPassword(text) ? undefined : text;
  };
  return { options: textsOf(SHOWN_OPTIONS, safe), counting: textsOf(COUNTING_OPTIONS, safe) };
}

/** A word of a command line, as a shell needs it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function textsOf(options: Options, given: Given): string[] {
  return Object.entries(options).flatMap(([name, option]) => {
    const text = given(name);
    if (text === undefined || text === option.default) return [];
    if (!option.flags.includes('<')) return flag(text) ? [flagOf(option)] : [];
    // Relative paths are those of the service.
    const isPath = /<(?:dir|file)(?:\.\.\.)?>$/.test(option.flags);
    return text.split(REPEATED).flatMap((value) => [flagOf(option), isPath ? resolve(value) : value]);
  });
}

function hasPassword(url: string): boolean {
  return parseDatabaseUrl(url).password !== null;
}
