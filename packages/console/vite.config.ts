/** Builds the console into the package of the server, with compressed copies. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const OUT = fileURLToPath(new URL('../server/dist/web/', import.meta.url));

export default defineConfig({
  base: '/console/',
  // The sources of the client, so that it need not be built first.
  resolve: { conditions: ['source'] },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    // One small file of each kind loads fastest. The content security policy forbids inlining.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    target: 'es2022',
  },
  plugins: [compressedCopies()],
});

/** Writes `.br` and `.gz` copies, so that the server need not compress. */
function compressedCopies(): Plugin {
  return {
    name: 'compressed-copies',
    closeBundle() {
      for (const name of readdirSync(OUT, { recursive: true, encoding: 'utf8' })) {
        const path = join(OUT, name);
        if (!statSync(path).isFile() || !/\.(html|js|css|svg)$/.test(name)) continue;
        const plain = readFileSync(path);
        writeFileSync(`${path}.br`, brotliCompressSync(plain));
        writeFileSync(`${path}.gz`, gzipSync(plain, { level: 9 }));
      }
    },
  };
}
