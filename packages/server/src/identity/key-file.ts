import { csv } from '../csv.ts';

/** The key file of the interface specification: one line under these columns. */
export function keyFileCsv(userName: string, key: { access: string; secret: string }): string {
  return csv(['User Name', 'Access Key Id', 'Secret Access Key'], [[userName, key.access, key.secret]]);
}
