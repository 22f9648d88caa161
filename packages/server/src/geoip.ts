/** Countries and networks of addresses, from MMDB files that the operator provides. */
import { readFileSync, type Stats, unwatchFile, watchFile } from 'node:fs';
import { Reader, type Response } from 'mmdb-lib';
import { BoundedCache } from './cache.ts';

/** An autonomous system. */
export interface Network {
  /** `AS64500`. */
  id: string;
  /** Of its operator; empty if the file has none. */
  name: string;
}

interface Place {
  country?: string | undefined;
  network?: Network | undefined;
}

/** How often to look for a replaced file. */
const CHECK_MS = 10_000;
/** An entry takes about 200 bytes. */
const PLACES_MAX = 16_384;

export class GeoIp {
  readonly #readers = new Map<string, Reader<Response>>();
  readonly #places = new BoundedCache<string, Place>({ name: null, entriesMax: PLACES_MAX });

  constructor(paths: readonly string[]) {
    for (const path of paths) this.#readers.set(path, openFile(path));
  }

  /** The country code of an address or network like 192.0.2.0/24. */
  country(address: string): string | undefined {
    return this.#placeOf(address).country;
  }

  network(address: string): Network | undefined {
    return this.#placeOf(address).network;
  }

  /** Uses files that are replaced, until the result is called. A bad one is reported, and the old one stays in use. */
  watch(
    log: { info(message: string): void; warn(message: string): void },
    intervalMs = CHECK_MS,
  ): () => void {
    const stops = [...this.#readers.keys()].map((path) => {
      const reload = (now: Stats, before: Stats) => {
        if (now.mtimeMs === before.mtimeMs && now.ino === before.ino) return;
        try {
          this.#readers.set(path, openFile(path));
          this.#places.clear();
          log.info(`--geoip: the new file ${path} is in use`);
        } catch (error) {
          log.warn(`--geoip: ${(error as Error).message}; the old one stays in use`);
        }
      };
      watchFile(path, { interval: intervalMs, persistent: false }, reload);
      return () => unwatchFile(path, reload);
    });
    return () => {
      for (const stop of stops) stop();
    };
  }

  /** The first file that has the country decides it, and the first that has the network. */
  #placeOf(address: string): Place {
    const known = this.#places.get(address);
    if (known) return known;
    const place: Place = {};
    const [ip = ''] = address.split('/');
    for (const reader of this.#readers.values()) {
      const record = recordOf(reader, ip);
      place.country ??= countryIn(record);
      place.network ??= networkIn(record);
    }
    this.#places.set(address, place);
    return place;
  }
}

function openFile(path: string): Reader<Response> {
  try {
    const reader = new Reader<Response>(readFileSync(path));
    reader.get('192.0.2.1');
    return reader;
  } catch (error) {
    throw new Error(`${path} is not a readable MMDB file (${(error as Error).message})`);
  }
}

/** A damaged file must not make queries fail. The library reads IPv6 addresses in files without them as others. */
function recordOf(reader: Reader<Response>, ip: string): Readonly<Record<string, unknown>> {
  if (reader.metadata.ipVersion === 4 && ip.includes(':')) return {};
  try {
    return { ...reader.get(ip) };
  } catch {
    return {};
  }
}

/** MaxMind and DB-IP: `country.iso_code`. IPinfo: `country_code`, or `country`. */
function countryIn({ country, country_code }: Readonly<Record<string, unknown>>): string | undefined {
  const nested = country instanceof Object && 'iso_code' in country ? country.iso_code : country;
  return [country_code, nested].find((code): code is string => /^[A-Z]{2}$/.test(String(code)));
}

/** MaxMind and DB-IP: `autonomous_system_number`. IPinfo: `asn`, like AS64500. */
function networkIn(record: Readonly<Record<string, unknown>>): Network | undefined {
  const number = /^(?:AS)?(\d+)$/.exec(String(record.autonomous_system_number ?? record.asn))?.[1];
  const name = record.autonomous_system_organization ?? record.as_name ?? record.name;
  return number === undefined ? undefined : { id: `AS${number}`, name: typeof name === 'string' ? name : '' };
}
