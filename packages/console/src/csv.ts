/** Tables for spreadsheets, by RFC 4180. */
export function csv(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((row) => `${row.map(quoted).join(',')}\r\n`).join('');
}

/** A text that a spreadsheet would take for a formula is kept from being one: host names come from attackers. */
function quoted(field: string | number): string {
  if (typeof field === 'number') return String(field);
  const harmless = /^[=+\-@\t\r]/.test(field) ? `'${field}` : field;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
