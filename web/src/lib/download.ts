// Files that the console makes for the person.

/** Saves content as a file of this name. */
export function download(name: string, content: BlobPart | BlobPart[], type = 'application/octet-stream') {
  const address = URL.createObjectURL(new Blob(Array.isArray(content) ? content : [content], { type }));
  const link = document.createElement('a');
  link.href = address;
  // Characters that turn the order around would show another ending than the file has.
  link.download = name.replace(/[\\/:*?"<>|\p{Cc}\p{Cf}\u2028\u2029]/gu, '_');
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A table as CSV. Cells that a spreadsheet would take for formulas begin with an apostrophe. */
export function csv(rows: (string | number | bigint)[][]): string {
  const cell = (value: string | number | bigint) => {
    const text = String(value);
    const safe = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}
