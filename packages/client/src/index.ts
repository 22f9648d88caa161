export type * from './client.ts';
export { ATTACK_TYPES, createClient, OVERVIEW_KEYS, PAGE_CODES } from './client.ts';
export type {
  Credentials,
  CustomCredentials,
  OutgoingRequest,
  PasswordCredentials,
  RequestHeaders,
  TokenCredentials,
} from './credentials.ts';
export { CATEGORY_NAMES, ruleName, ruleUrl } from './names.ts';
export { WafstatError } from './transport.ts';
export type * from './tuning.ts';
export { chosenExclusions, exclusionFile } from './tuning.ts';
