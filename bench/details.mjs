/** What attacks are about: sources, URLs and countries. Few are frequent, most are rare. */
const WORDS =
  'admin,login,wp-content,plugins,api,v1,users,search,static,upload,index.php,config,cgi-bin,shop,cart'.split(
    ',',
  );

/** A number below n: k has a share of about 1 / (k + 1). */
export function zipf(n, random = Math.random) {
  return Math.min(n - 1, Math.floor(Math.exp(random() * Math.log(n + 1))) - 1);
}

export function addressOf(n) {
  const mixed = Math.imul(n + 1, 0x9e3779b1) >>> 0;
  return [24, 16, 8, 0].map((bits) => (mixed >>> bits) & 255).join('.');
}

export function urlOf(n) {
  const [one, other] = [WORDS[n % WORDS.length], WORDS[Math.floor(n / WORDS.length) % WORDS.length]];
  return n < 10 ? `/${one}` : `/${one}/${other}/${n}`;
}

/** The country of a source: one of 64. */
export function countryOf(n) {
  const code = Math.imul(n + 7, 2_654_435_761) >>> 24;
  return `${String.fromCharCode(65 + (code % 8))}${String.fromCharCode(65 + ((code >> 3) % 8))}`;
}

export function ruleOf(n) {
  return String(941_100 + n * 10);
}
