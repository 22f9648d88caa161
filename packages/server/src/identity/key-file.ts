/** The key file of the interface specification: one line under these columns. */
export function keyFileCsv(userName: string, key: { access: string; secret: string }): string {
  return `User Name,Access Key Id,Secret Access Key\r\n${[userName, key.access, key.secret].map(quoted).join(',')}\r\n`;
}

/** By RFC 4180; and a name that a spreadsheet would take for a formula is kept from being one. */
function quoted(field: string): string {
  const harmless = /^[=+\-@\t\r]/.test(field) ? `'${field}` : field;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
