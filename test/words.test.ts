/** Words and names that were replaced by plain or standard ones must not come back. Add to the list when you replace more. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** What to write instead is in CONTRIBUTING.md (glossary) or behind the arrow. */
const REMOVED: readonly [pattern: RegExp, instead: string][] = [
  [/\banew\b|\bafresh\b/i, 'again, new, recomputed'],
  [/such a one\b/i, 'name the thing'],
  [/\bwho (asks|calls again|comes)\b/i, 'a client that requests'],
  [/\b(is|are) told (of|that)\b/i, 'gets, is notified'],
  [/\btokens? that (is|are) out\b/i, 'issued tokens'],
  [/\bmade-up\b/i, 'generated'],
  [/\bas (it|they) stands?\b/i, 'unchanged'],
  [/\bstands (in|there|at|under|before|behind)\b/i, 'is in'],
  [/\bof no known host\b/i, 'without a registered host'],
  [/\bis believed\b/i, 'is cached, is trusted'],
  [/\bhears of\b/i, 'gets'],
  [/\bturn(s|ed)? away\b/i, 'reject'],
  [/\band the like\b/i, 'and similar, or name them'],
  [/\bthereby\b/i, 'in this way'],
  [/\bfolders?\b/i, 'directory'],
  [/(\/\*\*|\* |\/\/) ?Answers\b/, 'Returns, resolves to'],
  [/'It (does|is)\.?'/, 'a sentence with a real subject'],
  [/\b(Soon|whenKnown)\b(?=[<(])/, 'MaybePromise, mapMaybe'],
  [
    /\b(WhileUnchanged|OncePerTurn|KeptAnswers|AnswerCache|DecodedChunks)\b/,
    'VersionedCache, PerTurnMemo, BoundedCache',
  ],
  [/\b(createAnswers|marksOf|parseUsual|plainQuery|timelineByBytes)\b/, 'deleted'],
  [/\b(believed_ms|runBehind|KnownPiece|pieceHash)\b/, 'cacheTtlMs, endExclusive, KnownChunk, chunkHash'],
];

const FILES = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  encoding: 'utf8',
})
  .split('\n')
  .filter((name) => /\.(ts|tsx|mjs|js|md|html|css)$/.test(name) && name !== 'test/words.test.ts');

test('no file has a word or name that was replaced', () => {
  const found = FILES.flatMap((name) =>
    readFileSync(name, 'utf8')
      .split('\n')
      .flatMap((line, i) =>
        REMOVED.filter(([pattern]) => pattern.test(line)).map(
          ([pattern, instead]) => `${name}:${i + 1}: '${pattern.exec(line)?.[0]}' -> ${instead}`,
        ),
      ),
  );
  expect(FILES.length).toBeGreaterThan(100);
  expect(found).toEqual([]);
});

test('no identifier with a unit is in snake_case', () => {
  const found = FILES.filter((name) => /\.(ts|tsx)$/.test(name)).flatMap((name) =>
    [...readFileSync(name, 'utf8').matchAll(/\b(?:const|let|readonly) ([a-z]+(?:_[a-z]+)*_ms)\b/g)].map(
      ([, identifier]) => `${name}: ${identifier}`,
    ),
  );
  expect(found).toEqual([]);
});
