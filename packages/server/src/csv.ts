/**
 * CSV as in RFC 4180. Text that a spreadsheet would run as a formula gets an apostrophe: names come from users and logs.
 * In many countries, spreadsheets divide lines at semicolons, also inside quotation marks that do not begin a line.
 */
export function csv(header: readonly string[], rows: readonly CsvRow[]): string {
  return csvRows([header, ...rows]);
}

type CsvRow = readonly (string | number)[];

export function csvRows(rows: readonly CsvRow[]): string {
  return rows.map((row) => `${row.map(field).join(',')}\r\n`).join('');
}

function field(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const text = value.replace(/^(?=[=+\-@\t\r])|(?<=[;\t\r\n])(?=[=+\-@])/g, "'");
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
