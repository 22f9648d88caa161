import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const bench = fileURLToPath(new URL('.', import.meta.url));
export const root = join(bench, '..');
export const server = join(root, 'packages/server');
export const wafstat = join(server, 'bin/wafstat.js');
