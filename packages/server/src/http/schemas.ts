/** Pieces of schema that several routes share. */
import { ERRORS } from '../errors.ts';

const ID = { type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$' } as const;

export const PROJECT_PATH = {
  type: 'object',
  required: ['project_id'],
  properties: { project_id: { ...ID, description: 'Project ID' } },
} as const;

export const HOSTS_PARAMETER = {
  type: 'array',
  items: ID,
  description:
    'Domain IDs, one `hosts=<id>` each, at most 1,000. Default: the whole project. Unknown IDs count as zero.',
} as const;

const ERROR = {
  type: 'object',
  required: ['error_code', 'error_msg'],
  properties: {
    error_code: { type: 'string' },
    error_msg: { type: 'string', description: 'A sentence that names the parameter and what was wrong' },
  },
} as const;

/** The answers of a route of the API: 200 as given, and the error table. */
export function withErrors(ok: object): Record<number, object> {
  const answers: Record<number, object> = { 200: { description: 'The request has succeeded', ...ok } };
  for (const [code, { status, when }] of Object.entries(ERRORS)) {
    const known = answers[status] as { description: string } | undefined;
    answers[status] = { ...ERROR, description: `${known ? `${known.description}; ` : ''}${code}: ${when}` };
  }
  return answers;
}
