/** The host of an absolute URL, as in `https://shop.example.com:443/path`; undefined for a bare path. */
export function hostOfUrl(url: string): string | undefined {
  // A host name has at most 253 characters: there is no need to search a megabyte for its end.
  const match = /^[a-z][a-z0-9+.-]{0,15}:\/\/(?:[^/?#@]*@)?([^/?#]+)/i.exec(url.slice(0, HEAD_LENGTH_MAX));
  return match?.[1] === '-' ? undefined : match?.[1];
}

const HEAD_LENGTH_MAX = 512;
