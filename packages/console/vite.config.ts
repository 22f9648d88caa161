/** Builds the console into the server's package, packed as it will be sent. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const OUT = fileURLToPath(new URL('../server/dist/web/', import.meta.url));

export default defineConfig({
  base: '/console/',
  // The client's sources, so that it need not be built first.
  resolve: { conditions: ['source'] },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    // Everything is small: one file each is the fastest to load. Nothing is inlined, because the policy forbids it.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    target: 'es2022',
  },
  plugins: [packed()],
});

/** Puts `.br` and `.gz` beside each file, so that the server never has to. */
function packed(): Plugin {
  return {
    name: 'packed',
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
