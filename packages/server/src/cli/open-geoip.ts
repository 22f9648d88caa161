/** Opens the files of `--geoip`. */
import type { GeoIp } from '../geoip.ts';
import { UserError } from './command.ts';

export async function openGeoIp(paths: readonly string[] | undefined): Promise<GeoIp | undefined> {
  if (paths === undefined) return undefined;
  // Loaded here, because few installations have such files.
  const { GeoIp } = await import('../geoip.ts');
  try {
    return new GeoIp(paths);
  } catch (error) {
    throw new UserError(`--geoip: ${(error as Error).message}`);
  }
}
