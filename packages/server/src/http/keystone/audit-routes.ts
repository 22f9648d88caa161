/** Reads the audit trail, for administrators of a domain: what concerns the domain. */
import { AUDIT_ACTIONS, type AuditRecord, matches, UnknownMarker } from '../../audit/audit-trail.ts';
import { invalid } from '../../errors.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { LIST_LIMIT_MAX, parseWhole, type RawQuery, single } from '../query.ts';
import { integer, partialObject, type Route, string } from '../route.ts';
import {
  type Catalog,
  filtersOf,
  identityRoutes,
  listLinks,
  listSchema,
  pageParameters,
  unknownMarker,
} from './keystone.ts';
import { administeredDomains, createView, readerOf } from './view.ts';

const NAME = 'audit_records';
const LIMIT_DEFAULT = 100;
/** Limits the work of a request whose filter few records match: about 4 MB, or 50 ms. */
const READ_MAX = 10_000;
const ACTIONS: readonly string[] = [
  ...new Set(AUDIT_ACTIONS.flatMap((action) => [action.split('.')[0] ?? '', action])),
];

const PARAMETERS = {
  from: integer('Start, milliseconds since the epoch.', { minimum: 0 }),
  to: integer('End (exclusive), milliseconds since the epoch.', { minimum: 0 }),
  user: string('ID or name of the acting user; `local:NAME` for the command line.'),
  action: string('An action, or a kind of actions, such as `user`.', { enum: ACTIONS }),
  ...pageParameters('records, 100 by default'),
};

export function auditRoutes(identity: RequestIdentity, catalog: Catalog): Route[] {
  const view = createView(identity);
  const { administration, audit } = identity;
  return identityRoutes([
    {
      method: 'GET',
      url: `/v3/${NAME}`,
      operationId: 'auditRecords',
      summary: 'List who changed what, when and from where, newest first',
      description:
        'Continue with `links.next` until it is null: a page can have fewer records than `limit`, even none. This call needs ' +
        'the role `admin` in a domain. It lists what concerns the domain; if there is only one, also starts of the service.',
      querystring: partialObject(PARAMETERS),
      response: { 200: listSchema(NAME) },
      async handler(request) {
        const query = filtersOf(request, Object.keys(PARAMETERS));
        const filter = parseFilter(query);
        const limit = parseWhole(query, 'limit', LIMIT_DEFAULT, 1, LIST_LIMIT_MAX);
        const marker = single(query, 'marker');
        const domains = new Set(administeredDomains(view, readerOf(request)).map(({ id }) => id));
        const isOnlyDomain = administration.domains().length === 1;
        const isVisible = ({ domain_id }: AuditRecord) =>
          domain_id === undefined ? isOnlyDomain : domains.has(domain_id);
        const records: AuditRecord[] = [];
        let read = 0;
        let next: string | null = null;
        try {
          for await (const { marker: place, record } of audit.newest(marker)) {
            if (record !== 'damaged' && isVisible(record) && matches(record, filter)) records.push(record);
            if (records.length === limit || ++read === READ_MAX) {
              next = place;
              break;
            }
          }
        } catch (error) {
          throw error instanceof UnknownMarker ? unknownMarker(marker) : error;
        }
        return { [NAME]: records, links: listLinks(catalog, request, next) };
      },
    },
  ]);
}

function parseFilter(query: RawQuery) {
  const time = (name: 'from' | 'to') =>
    query[name] === undefined ? undefined : parseWhole(query, name, 0, 0, Number.MAX_SAFE_INTEGER);
  const action = single(query, 'action');
  if (action !== undefined && !ACTIONS.includes(action))
    throw invalid('action', action, `must be one of ${ACTIONS.join(', ')}`);
  return { from: time('from'), to: time('to'), user: single(query, 'user'), action };
}
