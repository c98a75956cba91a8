// Files that are sent with a message.
import { bytes } from '$lib/format';
import type { OutgoingFile } from './outbox.svelte';
import { t } from './text';

const MAX_FILES = 8;
const MAX_FILE_BYTES = 10 * 1024 * 1024;
const MAX_TOTAL_BYTES = 20 * 1024 * 1024;

/** The largest text of a message, in bytes. */
export const MAX_TEXT_BYTES = 256 * 1024;

/** Adds files within the limits of the gateway. Returns the files, and why others were left out. */
export async function withFiles(files: OutgoingFile[], added: Iterable<File>): Promise<{ files: OutgoingFile[]; error: string }> {
  const all = [...files];
  let error = '';
  for (const file of added) {
    const total = all.reduce((sum, { content }) => sum + content.length, 0);
    const refusal = refusalOf(file, all.length, total);
    if (refusal) {
      error = refusal;
      continue;
    }
    try {
      const content = new Uint8Array(await file.arrayBuffer());
      all.push({ name: file.name || 'file', mediaType: file.type, content });
    } catch {
      // Folders are given as files that cannot be read.
      error = t('fileUnreadable', { name: file.name });
    }
  }
  return { files: all, error };
}

function refusalOf(file: File, count: number, total: number): string {
  const { name, size } = file;
  if (count >= MAX_FILES) return t('tooManyFiles', { max: MAX_FILES });
  if (size === 0) return t('fileEmpty', { name });
  if (size > MAX_FILE_BYTES) return t('fileTooLarge', { name, size: bytes(size), max: bytes(MAX_FILE_BYTES) });
  if (total + size > MAX_TOTAL_BYTES) return t('filesTooLarge', { name, max: bytes(MAX_TOTAL_BYTES) });
  return '';
}
