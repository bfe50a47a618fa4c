/** Room for the time, a counter and the ending below the 255 bytes of a file name, also for the partial file's name. */
const MAX_NAME_BYTES = 120;
const MAX_SAME_NAME = 100;

/** "20261120T232700Z": a time as file names carry it, UTC. */
export function timeStamp(time: Date): string {
  return `${time.toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
}

/**
 * A VM's name made fit for a file name: letters, digits, dot, dash and underscore of any script stay, the rest becomes
 * an underscore; no leading dot or dash; at most 120 bytes.
 */
export function safeFileStem(name: string): string {
  const clean = name
    .normalize('NFC')
    .replaceAll(/[^\p{L}\p{N}._-]/gu, '_')
    .replace(/^[.-]+/, '_');
  let stem = '';
  for (const character of clean) {
    if (Buffer.byteLength(stem + character) > MAX_NAME_BYTES) break;
    stem += character;
  }
  return stem || '_';
}

/** The stem of a new archive's name. */
export const archiveStem = (vmName: string, time: Date): string =>
  `${safeFileStem(vmName)}_${timeStamp(time)}`;

/** Names to be tried in turn: the stem with the ending, then with `_2`, `_3`… between. */
export function namesOf(stem: string, ending: string): string[] {
  return Array.from(
    { length: MAX_SAME_NAME },
    (_, index) => `${stem}${index === 0 ? '' : `_${index + 1}`}${ending}`,
  );
}
