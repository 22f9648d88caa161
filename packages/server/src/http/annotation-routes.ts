/** Annotations of a project: what happened at a time, such as a release or a change of rules. */
import { ApiError, malformed } from '../errors.ts';
import type { NewAnnotation } from '../identity/administration.ts';
import type { RequestIdentity } from '../identity/identity.ts';
import type { Annotation } from '../identity/records.ts';
import { valueAt } from '../json-path.ts';
import type { Range } from '../statistics/range.ts';
import { administer } from './auth/actor.ts';
import { optionalTextAt, parseJson, textAt } from './auth/json-body.ts';
import { checkNames, parseWhole, queryOf } from './query.ts';
import {
  array,
  integer,
  noContent,
  object,
  ok,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
} from './route.ts';

const PATH = '/v1/:project_id/waf/annotations';
const TIME_TEXT = 'Milliseconds since the epoch.';
const LINK_TEXT = 'An `http` or `https` URL.';

const ANNOTATION = object({
  id: string('Annotation ID.'),
  time: integer(TIME_TEXT),
  text: string('What happened.'),
  link: { type: ['string', 'null'], description: LINK_TEXT },
});

export function annotationRoutes({ administration }: RequestIdentity, now: () => number): Route[] {
  return [
    {
      method: 'GET',
      url: PATH,
      allow: 'reader',
      schema: {
        operationId: 'annotations',
        tags: ['annotations'],
        summary: 'List the annotations of a range, newest first',
        params: PROJECT_PATH,
        querystring: partialObject({
          from: integer(`Start of the range. Default: no limit. ${TIME_TEXT}`),
          to: integer(`End of the range, exclusive. Default: no limit. ${TIME_TEXT}`),
        }),
        response: ok(
          'The annotations.',
          object({ total: integer('Number of annotations.'), items: array(ANNOTATION) }),
        ),
      },
      async handler(request) {
        const query = queryOf(request);
        checkNames(query, ['from', 'to']);
        const from = parseWhole(query, 'from', 0, 0, Number.MAX_SAFE_INTEGER);
        const to = parseWhole(query, 'to', Number.MAX_SAFE_INTEGER, 0, Number.MAX_SAFE_INTEGER);
        if (from > to) throw new ApiError('WAF.1025', `from (${from}) is after to (${to})`);
        const items = annotationItems(administration, pathParameter(request, 'project_id'), { from, to });
        return { total: items.length, items };
      },
    },
    {
      method: 'POST',
      url: PATH,
      // The key of a deployment need not be that of an administrator.
      allow: 'ingest',
      schema: {
        operationId: 'addAnnotation',
        tags: ['annotations'],
        summary: 'Add an annotation',
        description: 'Needs the role `ingest` or `admin`.',
        params: PROJECT_PATH,
        body: partialObject(
          {
            text: string('What happened, in 1 to 200 characters.'),
            time: integer(`Default: now. At most a day from now. ${TIME_TEXT}`),
            link: { type: ['string', 'null'], description: LINK_TEXT },
          },
          { required: ['text'] },
        ),
        response: ok('The annotation.', ANNOTATION),
      },
      async handler(request) {
        const given = annotationIn(request.body, now);
        const project = pathParameter(request, 'project_id');
        return item(
          await administer(administration, request, (admin) => admin.addAnnotation(project, given)),
        );
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:annotation_id`,
      allow: 'admin',
      schema: {
        operationId: 'deleteAnnotation',
        tags: ['annotations'],
        summary: 'Delete an annotation',
        description: 'Needs the role `admin`.',
        params: object({ ...PROJECT_PATH.properties, annotation_id: string('Annotation ID') }),
        response: noContent('Deleted.'),
      },
      async handler(request, reply) {
        const project = pathParameter(request, 'project_id');
        const id = pathParameter(request, 'annotation_id');
        await administer(administration, request, (admin) => admin.removeAnnotation(project, id));
        return reply.code(204).send();
      },
    },
  ];
}

/** Newest first. */
export function annotationItems(
  administration: RequestIdentity['administration'],
  project: string,
  { from, to }: Range,
) {
  return administration
    .annotationsOf(project)
    .filter(({ time }) => time >= from && time < to)
    .map(item);
}

function annotationIn(body: unknown, now: () => number): NewAnnotation {
  const fields = parseJson(body);
  const unknown = Object.keys(Object(fields)).find((name) => !['text', 'time', 'link'].includes(name));
  if (unknown !== undefined)
    throw malformed(`there is no field '${unknown.slice(0, 64)}': use text, time, link`);
  const time = valueAt(fields, 'time') ?? now();
  if (typeof time !== 'number') throw malformed('time must be a number of milliseconds since the epoch');
  const link = valueAt(fields, 'link') === null ? null : (optionalTextAt(fields, 'link') ?? null);
  return { time, text: textAt(fields, 'text'), link };
}

function item({ id, time, text, link }: Annotation) {
  return { id, time, text, link };
}
