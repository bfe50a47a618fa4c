import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { readAt } from '@virtkeep/shared/file-bytes';
import { rangeOf } from '../bytes.ts';
import { openFile } from '../container/directory.ts';
import { gunzipped, unlzoped, unzstded } from '../container/unpacked.ts';
import { ofAppliance } from '../fault.ts';
import type { VmaHeader } from './format.ts';
import { type VmaData, VmaStream } from './stream.ts';

/** How a VMA is packed; what its bytes say, not its name. */
export type VmaPacking = 'none' | 'gzip' | 'zstd' | 'lzo';

/** An opened VMA, of which the header is read; its file is held open until it is closed. */
export interface Vma {
  readonly path: string;
  readonly packing: VmaPacking;
  readonly header: VmaHeader;
  /** Of the file. */
  readonly sizeBytes: number;
  /**
   * All data that is not zero, in the order of the archive; to be asked for once. Each piece of bytes may be kept.
   * @throws VirtkeepError appliance_invalid, naming the extent, also at the end when clusters are missing; io_failed, canceled
   */
  data(): AsyncGenerator<VmaData>;
  close(): Promise<void>;
}

const MAGICS: [string, VmaPacking][] = [
  ['1f8b', 'gzip'],
  ['28b52ffd', 'zstd'],
  ['894c5a4f000d0a1a0a', 'lzo'],
];
const MAGIC_BYTES = 9;

/**
 * Opens a VMA and reads its header, for which only the beginning is unpacked.
 * @param signal ends the reading of the data, too
 * @param onRead is told how much of the file was read; not of one that is packed with lzo
 * @throws VirtkeepError appliance_invalid, not_a_file, path_outside_pool, io_failed, canceled
 */
export function openVma(
  path: string,
  signal: AbortSignal,
  onRead: (bytesDone: number) => void = () => {},
): Promise<Vma> {
  return ofAppliance(path, async () => {
    throwIfAborted(signal);
    const file = await openFile(path);
    try {
      const { size } = await file.stat();
      const magic = (await readAt(file, 0, MAGIC_BYTES)).toString('hex');
      const packing = MAGICS.find(([start]) => magic.startsWith(start))?.[1] ?? 'none';
      const pieces = counted(rangeOf(file, 0, size, signal), onRead);
      const stream = await VmaStream.open(unpacked(file, packing, pieces, signal));
      return {
        path,
        packing,
        header: stream.header,
        sizeBytes: size,
        data: () => faultsOf(path, stream.data(signal)),
        close: async () => {
          await stream.close();
          await file.close();
        },
      };
    } catch (error) {
      await file.close();
      throw error;
    }
  });
}

/** The format bounds what comes out: each cluster of a device once, and devices of at most 64 TiB. */
function unpacked(
  file: FileHandle,
  packing: VmaPacking,
  pieces: AsyncGenerator<Buffer>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  if (packing === 'gzip') return gunzipped(pieces);
  if (packing === 'zstd') return unzstded(pieces);
  return packing === 'lzo' ? unlzoped(file, signal) : pieces;
}

async function* counted(
  pieces: AsyncIterable<Buffer>,
  onRead: (bytesDone: number) => void,
): AsyncGenerator<Buffer> {
  let done = 0;
  for await (const piece of pieces) {
    done += piece.length;
    onRead(done);
    yield piece;
  }
}

/** The same data; faults become errors of the table. */
async function* faultsOf(path: string, data: AsyncGenerator<VmaData>): AsyncGenerator<VmaData> {
  try {
    for (;;) {
      const next = await ofAppliance(path, () => data.next());
      if (next.done) return;
      yield next.value;
    }
  } finally {
    await data.return(undefined);
  }
}
