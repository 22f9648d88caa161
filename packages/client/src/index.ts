export { type Authorize, type OutgoingRequest, type RequestHeaders, tokenAuthorizer } from './authorize.ts';
export {
  type Abortable,
  type AttackTypesQuery,
  type Client,
  type ClientOptions,
  createClient,
  type HostsQuery,
  type PageQuery,
  type Range,
  type Recent,
  type TimelineQuery,
} from './client.ts';
export { WafstatError } from './error.ts';
export { type PasswordAuthorizerOptions, passwordAuthorizer } from './password-authorizer.ts';
export {
  ATTACK_TYPES,
  type AttackType,
  type AttackTypes,
  type Connection,
  type Host,
  type List,
  type Point,
  type Timeline,
} from './results.ts';
