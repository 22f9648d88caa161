/** The call of the API that answers the same question, ready for a shell. */
import type { Range } from './time-span.ts';

export interface Question extends Range {
  origin: string;
  project: string;
  hosts: readonly string[];
}

export function timelineCurl(question: Question, timezone: string): string {
  return curl(question, 'timeline', `&timezone=${encodeURIComponent(timezone)}`);
}

export function attackTypesCurl(question: Question): string {
  return curl(question, 'attack/type', '');
}

function curl({ origin, project, from, to, hosts }: Question, path: string, more: string): string {
  const filter = hosts.map((id) => `&hosts=${id}`).join('');
  const url = `${origin}/v1/${project}/waf/event/${path}?from=${from}&to=${to}${more}${filter}`;
  return `curl -H "X-Auth-Token: $TOKEN" '${url}'`;
}
