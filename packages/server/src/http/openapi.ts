/** The frame of the OpenAPI file; the rest of it comes from the routes' schemas. */
import type { SwaggerOptions } from '@fastify/swagger';

export const OPENAPI: SwaggerOptions = {
  openapi: {
    openapi: '3.1.0',
    info: {
      title: 'wafstat',
      version: '1',
      description: 'Statistics on the traffic and attacks that a web application firewall sees',
      license: { name: 'Apache-2.0' },
    },
    components: {
      securitySchemes: { token: { type: 'apiKey', in: 'header', name: 'X-Auth-Token' } },
    },
    security: [{ token: [] }],
    tags: [
      { name: 'statistics', description: 'The two queries' },
      { name: 'inventory', description: 'Hosts and log sources of a project' },
      { name: 'ingest', description: 'Sending logs' },
      { name: 'identity', description: 'Tokens and access keys' },
      { name: 'service', description: 'The process itself' },
    ],
  },
};
