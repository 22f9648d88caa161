import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { attackDetails } from './attack-details.ts';
import { decode, dropExample, isSecretName, maskQuery, maskSecrets } from './secrets.ts';

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
    'pass%77ord',
    '%50assword',
    'user%5Bpass%5D',
    'card_pin',
    'sig',
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

  test.each([
    'q',
    'passenger',
    'bypass',
    'author',
    'inside',
    'shipping',
    'design',
    'ARGS:id',
    'REQUEST_HEADERS:User-Agent',
  ])('%s does not', (name) => {
    expect(isSecretName(name)).toBe(false);
  });
});

test.each([
  ['a=1&b=2', 'a=1&b=2'],
  ['password=S', 'password=...'],
  ['user%5Bpassword%5D=S&b=2', 'user%5Bpassword%5D=...&b=2'],
  ['user%5Bpass%5D=S', 'user%5Bpass%5D=...'],
  ['a=1&token=S=S&id=1%27%20OR%201=1', 'a=1&token=...&id=1%27%20OR%201=1'],
  ['cookie=S&id=1', 'cookie=...&id=1'],
  ['x=Authorization:+Bearer+S&id=1', 'x=Authorization:+...&id=1'],
  ['x=bearer%20S&id=1', 'x=bearer%20...&id=1'],
  ['json=%7B%22password%22%3A%22S%22%7D&id=1', 'json=%7B%22password%22%3A%22...%22%7D&id=1'],
  ['next=https://u:S@www.example.com/', 'next=https://...@www.example.com/'],
  ['t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTIn0.S-S_S', 't=...'],
  ['file=/etc/passwd', 'file=/etc/passwd'],
  ['password', 'password'],
  ['pass%77ord=S&b=1', 'pass%77ord=...&b=1'],
  ["next=/login?password=S'S", 'next=/login?password=...'],
  ['next=https%3A%2F%2Fu%3AS%40www.example.com', 'next=https%3A%2F%2F...%40www.example.com'],
  ['mail=a%40www.example.com', 'mail=a%40www.example.com'],
  ['q=%53ELECT%20password', 'q=%53ELECT%20password'],
  ['&&=&', '&&=&'],
  ['next=%252Flogin%253Fpassword%253DS&b=1', 'next=%252Flogin%253Fpassword%253D...&b=1'],
  ['next=%2Flogin%3Fpassword%3DS%2526S%26b%3D1', 'next=%2Flogin%3Fpassword%3D...%26b%3D1'],
  ['q=Bearer%2520S', 'q=Bearer%2520...'],
  ['q=%22bearer%20S', 'q=%22bearer%20...'],
  ['next=https%253A%252F%252Fbob%253AS%2540b', 'next=https%253A%252F%252F...%2540b'],
  ['q=%22password%22%3A%22a,S%22', 'q=%22password%22%3A%22...%22'],
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
  ['REQUEST_BODY', "user=a&password=S;S'S,S)&b=1", 'user=a&password=...&b=1'],
  ['REQUEST_BODY', 'x=1&pass%77ord=S', 'x=1&pass%77ord=...'],
  ['REQUEST_BODY', 'user[password][0]=S&b=1', 'user[password][0]=...&b=1'],
  ['REQUEST_BODY', '{"pass\\u0077ord":"S"}', '{"pass\\u0077ord":"..."}'],
  ['REQUEST_BODY', '{"password":["S","S"],"b":1}', '{"password":[...],"b":1}'],
  ['REQUEST_BODY', '{"password":{"a":"S"},"b":1}', '{"password":{...},"b":1}'],
  ['REQUEST_BODY', '{"password":{"a":{},"b":"S"}}', '{"password":{...'],
  ['REQUEST_BODY', '<a:Password b="c">S S</a:Password>', '<a:Password b="c">...</a:Password>'],
  ['REQUEST_BODY', 'name="password"\r\n\r\nS--S\r\n--a', 'name="password"%0D%0A%0D%0A...%0A--a'],
  [
    'REQUEST_BODY',
    'name=\\x22password\\x22\\x0d\\x0a\\x0d\\x0aS',
    'name=\\x22password\\x22\\x0d\\x0a\\x0d\\x0a...',
  ],
  ['REQUEST_LINE', "POST /a?b=1&password=S'S HTTP/1.1", 'POST /a?b=1&password=...'],
  [
    'REQUEST_LINE',
    'GET https://u:S@S@www.example.com/?a=b@c HTTP/1.1',
    'GET https://...@www.example.com/?a=b@c HTTP/1.1',
  ],
  ['ARGS:q', 'cat /etc/passwd', 'cat /etc/passwd'],
  [
    'ARGS:q',
    "1' UNION SELECT password FROM users WHERE a=1",
    "1' UNION SELECT password FROM users WHERE a=1",
  ],
  ['REQUEST_BODY', '{\\x22password\\x22:\\x22S\\x22,\\x22b', '{\\x22password\\x22:\\x22...\\x22,\\x22b'],
  ['REQUEST_BODY', 'password\\x3dS', 'password\\x3d...'],
  ['REQUEST_BODY', 'password\\u003dS', 'password\\u003d...'],
  ['REQUEST_BODY', 'user=x&password=two words S&b=1', 'user=x&password=...&b=1'],
  ['REQUEST_BODY', "user=x&password=it's S&b=1", 'user=x&password=...&b=1'],
  ['REQUEST_BODY', 'user=x&pass%77ord=a%26S%22S&b=1', 'user=x&pass%77ord=...&b=1'],
  ['REQUEST_BODY', "password = 'correct horse S' -- a", "password = '...' -- a"],
  ['REQUEST_BODY', 'x password="a S" b', 'x password="..." b'],
  ['REQUEST_BODY', "{'password':'a S', 'b':1}", "{'password':'...', 'b':1}"],
  ['REQUEST_BODY', "['password' => 'a S']", "['password' => '...']"],
  ['REQUEST_BODY', '{"password":"a\\u0022 S","b":1}', '{"password":"...","b":1}'],
  ['REQUEST_BODY', '{"a":"x\\npassword: a S"}', '{"a":"x\\npassword: ...'],
  ['REQUEST_BODY', 'password: a, S', 'password: ...'],
  ['REQUEST_BODY', '{"password"                    : "S"}', '{"password"                    : "..."}'],
  ['REQUEST_BODY', `{"password${'_x'.repeat(20)}":"S"}`, `{"password${'_x'.repeat(20)}":"..."}`],
  ['REQUEST_BODY', 's:8:"password";s:3:"S"S";}', 's:8:"password";s:...'],
  ['REQUEST_BODY', '<password><![CDATA[</S]]></password><b>', '<password>...</password><b>'],
  ['REQUEST_BODY', '%3Cpassword%3ES%3C/password%3E', '%3Cpassword%3E...%3C/password%3E'],
  ['REQUEST_BODY', 'name=password\r\n\r\nS\r\n--a', 'name=password%0D%0A%0D%0A...%0A--a'],
  ['ARGS:q', 'Bearer  S', 'Bearer  ...'],
  ['ARGS:q', 'a Bearer: S', 'a Bearer: ...'],
  ['ARGS:q', 'Bearer\tS', 'Bearer%09...'],
  ['ARGS:next', 'https:\\/\\/u:S@www.example.com', 'https:\\/\\/...@www.example.com'],
])('the matched value of %s, %j, is stored as %s', (variable, value, kept) => {
  expect(attackDetails({ rules: [{ id: '1', variable, value }] })?.rules?.[0]?.value).toBe(kept);
});

test.each([
  ['/a;jsessionid=S/b', '/a;jsessionid=.../b'],
  ['/reset/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJTIn0.S-S_S/form', '/reset/.../form'],
  ['/a/bearer%20S', '/a/bearer%20...'],
  ['//bob:S@x/', '//...@x/'],
  ['/a%3Fpassword%3DS/S', '/a%3Fpassword%3D...'],
  ['/%22password%22:%22S%22', '/%22password%22:%22...%22'],
  ['/v1/tokens:revoke', '/v1/tokens:revoke'],
  ['/calendar/day=1', '/calendar/day=1'],
])('the path %s is stored as %s', (url, kept) => {
  expect(attackDetails({ url })?.url).toBe(kept);
});

test('a value that repeats the value of a secret variable is not stored', () => {
  const rules = [
    { id: '1', variable: 'ARGS:confirm', value: 'hunter2' },
    { id: '2', variable: 'ARGS:password', value: 'Hunter2' },
    { id: '3', variable: 'XML:/*', value: 'a hunter2 b' },
    { id: '4', variable: 'ARGS:pin', value: '1' },
    { id: '5', variable: 'ARGS:q', value: '1=1' },
  ];
  const kept = attackDetails({ rules })?.rules?.map(({ value }) => value);
  expect(kept).toEqual(['...', '...', '...', '...', '1=1']);
});

test.each([
  ['a part', 'ter2-Corr'],
  ['percent-encoded', 'a hunter2%2Dcorrect%20b'],
  ['encoded twice', '%2568%2575nter2-c'],
  ['escaped', '\\x68unter2\\u002dc'],
  ['in a form', 'hunter2-correct+horse'],
])('texts that repeat the value of a secret variable are not stored: %s', (_, text) => {
  const details = attackDetails({
    url: `/a/${text}/b?c=1&d=${text}&e=2`,
    userAgent: `curl ${text}`,
    rules: [
      { id: '1', variable: 'ARGS:q', value: `a ${text} b` },
      { id: '2', variable: 'ARGS:password', value: 'Hunter2-correct horse' },
      { id: '3', variable: 'ARGS:r', value: 'correc' },
      { id: '4', variable: 'ARGS:s', value: 'horse' },
    ],
  });
  expect(details).toMatchObject({ url: '/a/.../b', query: 'c=1&d=...&e=2', userAgent: '...' });
  expect(details?.rules?.map(({ value }) => value)).toEqual(['...', '...', '...', 'horse']);
});

test('a URL that repeats a secret across its parts is not stored', () => {
  const rules = [{ id: '1', variable: 'ARGS:password', value: 'ab/cd/ef&g=h&i=j' }];
  expect(attackDetails({ url: '/ab/cd/ef?g=h&i=j', rules })).toMatchObject({ url: '/...', query: '...' });
  expect(attackDetails({ url: '*', rules })).toMatchObject({ url: '*' });
});

test('a secret with line ends is found where it is repeated', () => {
  const values = ['abc\ndef', 'abc%0adef', 'abc\\ndef', 'def'];
  const rules = values.map((value, i) => ({ id: '1', variable: i === 0 ? 'ARGS:pin' : 'ARGS:q', value }));
  expect(attackDetails({ rules })?.rules?.map(({ value }) => value)).toEqual(['...', '...', '...', 'def']);
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

  test('a secret is not stored, however it is written', () => {
    const hex = (character: string) => character.charCodeAt(0).toString(16).padStart(2, '0');
    const encodings = [
      (text: string) => text,
      (text: string) => text.replace(/[^\w%]|%/g, (each) => `%${hex(each)}`),
      (text: string) => text.replace(/[^ -~]|["'=&:<>\\]/g, (each) => `\\x${hex(each)}`),
      (text: string) => text.replace(/["'=&:<>\\w]/g, (each) => `\\u00${hex(each)}`),
      (text: string) => text.replaceAll(' ', '+'),
    ];
    const characters = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'];
    const written = fc
      .record({
        before: fc.constantFrom('', 'a=1&', '{"a":1,', '/login?', 'x ', '"', '<a>', 'a: b\n'),
        name: fc.oneof(
          name,
          name.map((each) => `${each}${'_x'.repeat(20)}`),
        ),
        nameQuote: fc.constantFrom('', '"', "'", '\\"', '`'),
        blanks: fc.constantFrom('', ' ', '\t', ' '.repeat(12)),
        separator: fc.constantFrom('=', ':', '=>', ':=', ';s:9:'),
        quote: fc.constantFrom('', '"', "'", '\\"', '['),
        start: fc.constantFrom('', 'two words ', 'a,', 'a;', 'a)', 'a%26', 'a\\u0022', 'a}'),
        secret: fc.string({ unit: fc.constantFrom(...characters), minLength: 8, maxLength: 20 }),
        after: fc.constantFrom('', '&b=1', '"', ' b'),
        encoded: fc.array(fc.constantFrom(...encodings), { maxLength: 3 }),
      })
      .map(({ encoded, secret, ...each }) => {
        const { before, nameQuote: q, blanks, separator, quote, start, after } = each;
        const text = `${before}${q}${each.name}${q}${blanks}${separator}${blanks}${quote}${start}${secret}${quote}${after}`;
        return { secret, text: encoded.reduce((result, encode) => encode(result), text) };
      });
    fc.assert(
      fc.property(written, ({ secret, text }) => {
        const kept = JSON.stringify([
          attackDetails({ rules: [{ id: '1', variable: 'REQUEST_BODY', value: text }] }),
          attackDetails({ userAgent: text }),
          attackDetails({ url: '/', query: `q=${encodeURIComponent(text)}` }),
        ]);
        expect(kept).not.toContain(secret);
        expect(decode(kept)).not.toContain(secret);
      }),
      { numRuns: 1_000 },
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
    ['{"Cookie":["a=\\"S\\"; b=S"],"host":"a"}', '{"Cookie":[...],"host":"a"}'],
    ['{"name":"cookie","value":"S"},{"name":"b"}', '{"name":"cookie","value":"..."},{"name":"b"}'],
    ['{"log":"{\\"proxy-authorization\\":\\"S\\"}"}', '{"log":"{\\"proxy-authorization\\":\\"..."}'],
    ['sent Bearer S.S-S= and went on', 'sent Bearer ... and went on'],
    ['user=a&password=S&x=1', 'user=a&password=...&x=1'],
    ['{"passwd": "S \\" S", "x": 1, "pwd":S}', '{"passwd": "...", "x": 1, "pwd":...'],
    ["X-Api-Key: S, client_secret='S'", 'X-Api-Key: ...'],
    ["against variable `ARGS:password' (Value: `S' )", "against variable `ARGS:password' (Value: `..."],
    ['found within REQUEST_COOKIES:session_id: S', 'found within REQUEST_COOKIES:...'],
    ['"cookie":"S', '"cookie":"...'],
    ['https://u:S@www.example.com/', 'https://...@www.example.com/'],
    ['the word password, and a cookie', 'the word password, and a cookie'],
  ])('has no secrets: %s', (line, shown) => {
    expect(dropExample(line)).toBe(shown);
  });
});
