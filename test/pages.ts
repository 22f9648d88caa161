/** Code blocks and links of a documentation page, for the tests that run the blocks. */
import { readFileSync } from 'node:fs';

export interface Fence {
  language: string;
  /** What the test does with the block: `run`, `output`, `not-run` ... */
  kind: string;
  /** After the `=` of the marker; may be empty. */
  name: string;
  code: string;
}

export class Page {
  readonly #url: URL;
  readonly text: string;
  readonly fences: readonly Fence[];

  /** `path` is relative to the root of the repository. */
  constructor(path: string) {
    this.#url = new URL(`../${path}`, import.meta.url);
    this.text = readFileSync(this.#url, 'utf8');
    this.fences = [...this.text.matchAll(/^```([^\n]*)\n(.*?)^```$/gms)].map(([, info = '', code = '']) => {
      const [language = '', marker = ''] = info.split(' ', 2);
      const [kind = '', name = ''] = marker.split('=', 2);
      return { language, kind, name, code };
    });
  }

  /** Also counts other kinds of blocks, such as indented ones: twice as many as `fences` if there are none. */
  get fenceLines(): number {
    return this.text.match(/^\s*(```|~~~)/gm)?.length ?? 0;
  }

  ofKind(...kinds: string[]): Fence[] {
    return this.fences.filter(({ kind }) => kinds.includes(kind));
  }

  get links(): string[] {
    const prose = this.text.replaceAll(/^```.*?^```$/gms, '');
    return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, link = '']) => link)
      .filter((link) => !/^[a-z]+:/.test(link));
  }

  /** Links to files or headings that do not exist. */
  get brokenLinks(): string[] {
    return this.links.filter((link) => {
      const [file = '', anchor] = link.split('#');
      try {
        const target = file === '' ? this.#url : new URL(file, this.#url);
        const content = readFileSync(target, 'utf8');
        return anchor !== undefined && !anchorsOf(content).includes(anchor);
      } catch (error) {
        // A directory exists, too.
        return (error as NodeJS.ErrnoException).code !== 'EISDIR';
      }
    });
  }
}

/** As GitHub makes them from headings. */
function anchorsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}

/** What an `output` block stands for: `...` stands for any text, or on a line of its own for any number of lines. */
export function outputPattern(documented: string): RegExp {
  const escaped = documented.trimEnd().replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  const lines = escaped.replaceAll(/^\\\.\\\.\\\.\n/gm, '(?:.*\n)*').replace(/\n\\\.\\\.\\\.$/, '(?:\n.*)*');
  return new RegExp(`^${lines.replaceAll('\\.\\.\\.', '.*')}$`);
}
