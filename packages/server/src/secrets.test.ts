import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { attackDetails } from './attack-details.ts';
import { dropExample, isSecretName, maskQuery, maskSecrets } from './secrets.ts';

describe('names that suggest a secret', () => {
  test.each([
    'password',
    'user[passwd]',
    'new_password2',
    'PassWord',
    'pass',
    'user_pass',
    'apiKey',
    'X-Api-Key',
    'access_token',
    'PHPSESSID',
    'JSESSIONID',
    'sid',
    'X-Amz-Signature',
    'ARGS:password',
    'ARGS_POST:json.user.client_secret',
    'REQUEST_HEADERS:Authorization',
    'REQUEST_HEADERS:Proxy-Authorization',
    'REQUEST_COOKIES:theme',
    'HEADER:cookie',
    'CookieValue:a',
  ])('%s does', (name) => {
    expect(isSecretName(name)).toBe(true);
  });

  test.each(['q', 'passenger', 'bypass', 'author', 'inside', 'ARGS:id', 'REQUEST_HEADERS:User-Agent'])(
    '%s does not',
    (name) => {
      expect(isSecretName(name)).toBe(false);
    },
  );
});

test.each([
  ['a=1&b=2', 'a=1&b=2'],
  ['password=S', 'password=...'],
  ['user%5Bpassword%5D=S&b=2', 'user%5Bpassword%5D=...&b=2'],
  ['user%5Bpass%5D=S', 'user%5Bpass%5D=...'],
  ['a=1&token=S=S&id=1%27%20OR%201=1', 'a=1&token=...&id=1%27%20OR%201=1'],
  ['cookie=S&id=1', 'cookie=...&id=1'],
  ['x=Authorization:+Bearer+S&id=1', 'x=Authorization:...&id=1'],
  ['x=bearer%20S&id=1', 'x=bearer%20...&id=1'],
  ['json=%7B%22password%22%3A%22S%22%7D&id=1', 'json=%7B%22password%22%3A%22...&id=1'],
  ['next=https://u:S@www.example.com/', 'next=https://...@www.example.com/'],
  ['t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTIn0.S-S_S', 't=...'],
  ['file=/etc/passwd', 'file=/etc/passwd'],
  ['password', 'password'],
  ['&&=&', '&&=&'],
])('the query %s is stored as %s', (query, masked) => {
  expect(maskQuery(query)).toBe(masked);
});

test.each([
  ['ARGS:q', "' or 1=1", "' or 1=1"],
  ['ARGS:password', 'S', '...'],
  ['REQUEST_COOKIES:a', 'S', '...'],
  ['REQUEST_HEADERS:Authorization', 'Basic S', '...'],
  ['REQUEST_BODY', 'user=a&password=S&b=<script>', 'user=a&password=...&b=<script>'],
  ['REQUEST_BODY', '{"user":"a","token":"S","b":1}', '{"user":"a","token":"...","b":1}'],
  ['ARGS:log', 'x\nAuthorization: Bearer S', 'x%0AAuthorization: ...'],
  ['', 'sent bearer S', 'sent bearer ...'],
])('the matched value of %s, %j, is stored as %s', (variable, value, kept) => {
  expect(attackDetails({ rules: [{ id: '1', variable, value }] })?.rules?.[0]?.value).toBe(kept);
});

test('a user agent has no secrets', () => {
  expect(attackDetails({ userAgent: 'curl/8 token=S' })?.userAgent).toBe('curl/8 token=...');
});

describe('whatever is around it', () => {
  const SECRET = 'hunter2hunter2';
  const noise = fc.string({ maxLength: 600 });
  const name = fc.constantFrom('password', 'api_key', 'session_id', 'user[token]', 'X-Auth-Token');

  test('the secret argument of a query is not stored', () => {
    fc.assert(
      fc.property(noise, name, noise, (before, secret, after) => {
        const query = `${before}&${secret}=${SECRET}&${after}`;
        expect(JSON.stringify(attackDetails({ url: `/?${query}` }))).not.toContain(SECRET);
        expect(JSON.stringify(attackDetails({ url: '/', query }))).not.toContain(SECRET);
      }),
    );
  });

  test('the value of a secret variable is not stored', () => {
    fc.assert(
      fc.property(noise, name, noise, (before, secret, after) => {
        const rules = [{ id: '1', variable: `ARGS:${secret}`, value: `${before}${SECRET}${after}` }];
        expect(JSON.stringify(attackDetails({ rules }))).not.toContain(SECRET);
      }),
    );
  });

  test('masked text stays as it is', () => {
    const text = fc.array(fc.oneof(noise, name, fc.constantFrom('=', ': ', '&', '"', 'Cookie: ', 'Basic ')));
    fc.assert(
      fc.property(text, (parts) => {
        const masked = maskSecrets(parts.join(''));
        expect(maskSecrets(masked)).toBe(masked);
      }),
    );
  });
});

describe('an example of a dropped line', () => {
  test.each([
    ['GET /a?token=S&x=S HTTP/1.1', 'GET /a?... HTTP/1.1'],
    ['192.0.2.7 "GET /a" Cookie: id="S"; b=S', '192.0.2.7 "GET /a" Cookie: ...'],
    ['Set-Cookie: S; Path=/', 'Set-Cookie: ...'],
    ['{"Authorization":"Basic S","host":"a"}', '{"Authorization":"...","host":"a"}'],
    ['{"Cookie":["a=\\"S\\"; b=S"],"host":"a"}', '{"Cookie":["..."],"host":"a"}'],
    ['{"name":"cookie","value":"S"},{"name":"b"}', '{"name":"cookie","value":"..."},{"name":"b"}'],
    ['{"log":"{\\"proxy-authorization\\":\\"S\\"}"}', '{"log":"{\\"proxy-authorization\\":\\"..."}'],
    ['sent Bearer S.S-S= and went on', 'sent Bearer ... and went on'],
    ['user=a&password=S&x=1', 'user=a&password=...&x=1'],
    ['{"passwd": "S \\" S", "x": 1, "pwd":S}', '{"passwd": "...", "x": 1, "pwd":...}'],
    ["X-Api-Key: S, client_secret='S'", "X-Api-Key: ..., client_secret='...'"],
    ["against variable `ARGS:password' (Value: `S' )", "against variable `ARGS:password' (Value: `...' )"],
    ['found within REQUEST_COOKIES:session_id: S', 'found within REQUEST_COOKIES:session_id: ...'],
    ['"cookie":"S', '"cookie":"...'],
    ['https://u:S@www.example.com/', 'https://...@www.example.com/'],
    ['the word password, and a cookie', 'the word password, and a cookie'],
  ])('has no secrets: %s', (line, shown) => {
    expect(dropExample(line)).toBe(shown);
  });
});
