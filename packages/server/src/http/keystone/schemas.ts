/** Pieces of schema for the identity routes. */

export function LIST_OF(name: string) {
  return {
    description: `The ${name}`,
    type: 'object',
    properties: {
      [name]: { type: 'array', items: { type: 'object', additionalProperties: true } },
      links: { type: 'object', additionalProperties: true },
    },
  } as const;
}

export const TOKEN_ANSWER = {
  description: 'The token itself is in the header X-Subject-Token; it is valid for 24 hours',
  type: 'object',
  properties: { token: { type: 'object', additionalProperties: true } },
} as const;

const NAMED = { type: 'object', properties: { id: { type: 'string' }, name: { type: 'string' } } } as const;

const USER = {
  type: 'object',
  required: ['password'],
  properties: {
    id: { type: 'string', description: 'Instead of name and domain' },
    name: { type: 'string' },
    domain: NAMED,
    password: { type: 'string' },
  },
} as const;

const SCOPE = {
  type: 'object',
  properties: {
    project: { type: 'object', properties: { ...NAMED.properties, domain: NAMED } },
    domain: { ...NAMED, description: 'Not enough for the statistics; a project wins when both are given' },
  },
} as const;

export const TOKEN_REQUEST = {
  type: 'object',
  required: ['auth'],
  properties: {
    auth: {
      type: 'object',
      required: ['identity', 'scope'],
      properties: {
        identity: {
          type: 'object',
          required: ['methods', 'password'],
          properties: {
            methods: { type: 'array', items: { type: 'string', enum: ['password'] } },
            password: { type: 'object', properties: { user: USER } },
          },
        },
        scope: SCOPE,
      },
    },
  },
} as const;

const CREDENTIAL = {
  type: 'object',
  properties: {
    access: { type: 'string' },
    user_id: { type: 'string' },
    description: { type: 'string' },
    status: { type: 'string', enum: ['active', 'inactive'] },
    create_time: { type: 'string' },
    secret: { type: 'string', description: 'Only in the answer that makes the key' },
  },
} as const;

export const CREDENTIAL_ANSWER = {
  description: 'The access key',
  type: 'object',
  properties: { credential: CREDENTIAL },
} as const;

export const CREDENTIALS_ANSWER = {
  description: 'The access keys, without their secrets',
  type: 'object',
  properties: { credentials: { type: 'array', items: CREDENTIAL } },
} as const;

export const CREDENTIAL_REQUEST = {
  type: 'object',
  required: ['credential'],
  properties: {
    credential: {
      type: 'object',
      properties: {
        user_id: { type: 'string' },
        description: { type: 'string' },
        status: { type: 'string', enum: ['active', 'inactive'] },
      },
    },
  },
} as const;
