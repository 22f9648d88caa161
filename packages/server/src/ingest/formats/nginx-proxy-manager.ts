/** The access log of Nginx Proxy Manager, whose format is its own. */
import { COMMON_TIME, type TextFormat } from './format.ts';
import { compilePattern } from './pattern.ts';

/** `[10/Dec/2025:09:25:32 +0000] - 200 200 - GET https shop.example.com "/" [Client 192.0.2.7] [Length 6] ..` */
export const nginxProxyManager: TextFormat = {
  name: 'nginx-proxy-manager',
  about: 'access log of Nginx Proxy Manager',
  traits: [
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form at its start', (line) => line.search(COMMON_TIME) === 0],
    ['[Client address]', (line) => line.includes(' [Client ')],
    [
      'status, method, scheme and host before the quoted path',
      (line) => /\d{3} - [A-Z-]+ \S+ \S+ "/.test(line),
    ],
  ],
  recognizes: (line) => line.startsWith('] ', STAMP_LENGTH) && line.includes(' [Client '),
  parse: compilePattern('nginx-proxy-manager').parse,
};

/** `[10/Dec/2025:09:25:32 +0000` */
const STAMP_LENGTH = 27;
