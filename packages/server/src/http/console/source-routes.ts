/** The health of log sources, and what an administrator needs to connect the first one. */
import { isDeepStrictEqual } from 'node:util';
import { ApiError, malformed } from '../../errors.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { administersDomain, type Project, type User } from '../../identity/records.ts';
import { generatePassword } from '../../identity/secrets.ts';
import type { Source, Store } from '../../store/store.ts';
import { administer } from '../auth/actor.ts';
import { administeredDomain } from '../auth/domain-scope.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';

const PATH = '/console/api/projects/:project_id';

/** How the command line reaches the same installation. */
export interface Installed {
  /** The path of the program. */
  program: string;
  /** The options that name the installation, without secrets. */
  options: readonly string[];
  /** The options that say what is counted and kept, where they differ from the defaults. */
  counting: readonly string[];
}

export function sourceRoutes(
  { administration, lookup }: RequestIdentity,
  store: Store,
  now: () => number,
  installed: Installed | undefined,
): Route[] {
  /** The user whose keys send the logs of a project: one that can do nothing else, or a new one. */
  const shipperOf = ({ id, name, domain_id }: Project): { name: string; user: User | undefined } => {
    const users = administration.users().filter((user) => user.domain_id === domain_id);
    const canOnlySend = ({ enabled, access, roles }: User) =>
      enabled && access === 'programmatic' && isDeepStrictEqual(roles, { [id]: ['ingest'] });
    // Names have at most 64 characters.
    const names = [`ingest-${name}`.slice(0, 64).trimEnd(), `ingest-${id.slice(0, 16)}`];
    const shippers = names.map((one) => ({ name: one, user: users.find((user) => user.name === one) }));
    const shipper = shippers.find(({ user }) => user === undefined || canOnlySend(user));
    if (shipper) return shipper;
    const advice = 'delete one under Users and projects';
    throw malformed(
      `the users ${names.join(' and ')} can do more than send logs, or are disabled: ${advice}`,
    );
  };

  return [
    {
      method: 'GET',
      url: `${PATH}/sources`,
      ...SESSION_ONLY,
      allow: 'reader',
      /** Rates are differences between two responses: `now` is the time of this one. */
      async handler(request) {
        const sources = await store.sources(pathParameter(request, 'project_id'));
        // Log lines hold personal data: only administrators see examples.
        return {
          now: now(),
          items: sources.map(({ examples, ...source }) => ({
            ...source,
            examples: request.isAdmin ? textsOf(examples) : {},
          })),
        };
      },
    },
    {
      method: 'GET',
      url: `${PATH}/setup`,
      ...SESSION_ONLY,
      allow: 'reader',
      /**
       * Only administrators see paths on the server, and only if there are no other customers. Everyone sees what a command
       * must not count or keep.
       */
      async handler(request) {
        const { user } = callerOf(request);
        const mayAdminister = administersDomain(user, user.domain_id);
        const maySeePaths = mayAdminister && administration.domains().length === 1;
        return {
          program: (maySeePaths && installed?.program) || null,
          options: (maySeePaths && installed?.options) || [],
          counting: installed?.counting ?? [],
          can_create_key: mayAdminister,
        };
      },
    },
    {
      method: 'POST',
      url: `${PATH}/ingest-key`,
      ...SESSION_ONLY,
      allow: 'admin',
      /** Creates an access key of a user who can only send logs to this project. Only this response contains the secret. */
      async handler(request, reply) {
        const domainId = administeredDomain(request);
        const project = lookup.project(pathParameter(request, 'project_id'));
        if (project?.domain_id !== domainId) throw new ApiError('WAF.4000', 'unknown project');
        const { name, user } = shipperOf(project);
        const key = await administer(administration, request, async (admin) => {
          const owner =
            user ??
            (await admin.addUser({
              name,
              domain_id: domainId,
              access: 'programmatic',
              password: generatePassword(),
              roles: { [project.id]: ['ingest'] },
            }));
          return admin.addKey(owner.id, 'Created on the first-run page');
        });
        return reply.code(201).send({ user: name, access: key.access, secret: key.secret });
      },
    },
  ];
}

function textsOf(examples: Source['examples']): Record<string, string> {
  return Object.fromEntries(Object.entries(examples).map(([reason, { text }]) => [reason, text]));
}
