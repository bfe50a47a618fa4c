/**
 * Puts back the end an archive had before it was extended, as `tailPath` keeps it, and removes that file. Idempotent;
 * without the file nothing was overwritten yet.
 */
export async function undoAppend(path: string, tailPath: string): Promise<void> {
  throw new Error(`not written yet: ${path} ${tailPath}`);
}
