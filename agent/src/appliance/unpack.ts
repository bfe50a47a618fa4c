import type { FileHandle } from 'node:fs/promises';
import type { AppliancePackage } from './appliance.ts';
import { limited, type MadeFile, rangeOf, writeNew } from './bytes.ts';
import type { Member } from './container/container.ts';
import { gunzipped } from './container/unpacked.ts';
import { Fault, ofDisk, shown } from './fault.ts';
import { openSource, type Source } from './source.ts';

export interface UnpackOptions {
  signal: AbortSignal;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/**
 * Unpacks members of a packed appliance into new files, in one pass. After an error those that were begun may be there whole, never
 * in part.
 * @param targets absolute paths of new files, or files that the caller has made, by the members' names
 * @throws VirtkeepError appliance_invalid, disk_full, io_failed, canceled
 */
export async function unpackMembers(
  appliance: AppliancePackage,
  targets: ReadonlyMap<string, string | MadeFile>,
  { signal, onProgress }: UnpackOptions,
): Promise<void> {
  const wanted = appliance.members.filter(({ name }) => targets.has(name));
  const totalBytes = wanted.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  const onBytes = (bytes: number) => {
    doneBytes += bytes;
    onProgress?.(doneBytes, totalBytes);
  };
  const take = async (member: Member, pieces: AsyncIterable<Buffer>) => {
    await writeNew(targets.get(member.name)!, pieces, { signal, onBytes });
  };
  await appliance.read(new Set(targets.keys()), take, signal);
}

/** Name of a part of a file that was cut into pieces. */
const chunkName = (name: string, index: number): string => `${name}.${String(index).padStart(9, '0')}`;

/**
 * The parts of a file that was cut into pieces of one size, the last of which may be shorter.
 * @throws VirtkeepError foreign_disk_invalid when there are none, or one in between is missing or shorter; not_a_file, io_failed
 */
export function chunksOf(appliance: AppliancePackage, name: string): Promise<Member[]> {
  return ofDisk(name, async () => {
    const chunks: Member[] = [];
    for (;;) {
      const chunk = await appliance.find(chunkName(name, chunks.length));
      if (chunk === undefined) break;
      chunks.push(chunk);
    }
    const missing = chunkName(name, chunks.length);
    if (chunks.length === 0 || (await appliance.find(chunkName(name, chunks.length + 1))) !== undefined)
      throw new Fault(`there is no part ${shown(missing)}`);
    const odd = chunks.find(({ sizeBytes }, index) =>
      index === chunks.length - 1 ? sizeBytes > chunks[0]!.sizeBytes : sizeBytes !== chunks[0]!.sizeBytes,
    );
    if (odd !== undefined) throw new Fault(`its part ${shown(odd.name)} is of another size than the first`);
    return chunks;
  });
}

export interface DiskOptions extends UnpackOptions {
  compression: 'none' | 'gzip';
  /** Most bytes that come out: `mostOfDisk` of what the descriptor declares. */
  mostBytes: number;
}

/**
 * Joins the parts of a disk's image, unpacks it when it is compressed, and writes it to a new file. Progress is that of what is read.
 * @param parts in their order; one when it was not cut
 * @returns bytes of the image
 * @throws VirtkeepError foreign_disk_invalid, disk_full, io_failed, canceled
 */
export function unpackDisk(
  parts: readonly Source[],
  target: string | MadeFile,
  options: DiskOptions,
): Promise<number> {
  const { signal, compression, mostBytes, onProgress } = options;
  const totalBytes = parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return ofDisk(parts[0]?.name ?? (typeof target === 'string' ? target : target.path), async () => {
    const joined = joinedOf(parts, signal, doneBytes => onProgress?.(doneBytes, totalBytes));
    const pieces = compression === 'gzip' ? gunzipped(joined) : joined;
    return await writeNew(target, limited(pieces, mostBytes), { signal });
  });
}

async function* joinedOf(
  parts: readonly Source[],
  signal: AbortSignal,
  onRead: (doneBytes: number) => void,
): AsyncGenerator<Buffer> {
  let doneBytes = 0;
  for (const part of parts) {
    const file: FileHandle = await openSource(part);
    try {
      for await (const piece of rangeOf(file, part.offset, part.sizeBytes, signal)) {
        doneBytes += piece.length;
        onRead(doneBytes);
        yield piece;
      }
    } finally {
      await file.close();
    }
  }
}
