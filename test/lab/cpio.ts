/** One entry of an initramfs. Directories and links have their type in `mode`. */
export interface CpioEntry {
  path: string;
  mode: number;
  data: Buffer;
}

export const DIRECTORY = 0o040755;
export const EXECUTABLE = 0o100755;
export const PLAIN = 0o100644;
export const SYMLINK = 0o120777;

/** A "newc" cpio archive, as the kernel's initramfs loader reads it (Documentation/driver-api/early-userspace). */
export function cpioArchive(entries: readonly CpioEntry[]): Buffer {
  const chunks: Buffer[] = [];
  [...entries, { path: 'TRAILER!!!', mode: 0, data: Buffer.alloc(0) }].forEach((entry, index) => {
    const name = Buffer.from(`${entry.path}\0`);
    const fields = [index + 1, entry.mode, 0, 0, 1, 0, entry.data.length, 0, 0, 0, 0, name.length, 0];
    const header = `070701${fields.map(field => field.toString(16).padStart(8, '0')).join('')}`;
    chunks.push(padded(Buffer.concat([Buffer.from(header), name])), padded(entry.data));
  });
  return Buffer.concat(chunks);
}

function padded(bytes: Buffer): Buffer {
  const rest = bytes.length % 4;
  return rest === 0 ? bytes : Buffer.concat([bytes, Buffer.alloc(4 - rest)]);
}
