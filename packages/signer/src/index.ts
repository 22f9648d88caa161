export {
  type CanonicalParts,
  canonicalHeaders,
  canonicalPath,
  canonicalQuery,
  canonicalRequest,
  type HeaderLine,
  signedHeaders,
} from './canonical-request.ts';
export { percentDecode, percentEncode } from './percent-encoding.ts';
export {
  type AccessKey,
  type SignableRequest,
  type SignatureHeaders,
  type SignOptions,
  sign,
} from './sign.ts';
export { sha256Hex, signature } from './signature.ts';
export { ALGORITHM, authorization, sdkDate, stringToSign } from './string-to-sign.ts';
