/** The members of a new archive out of a foreign VM: its disks, several at a time, and what describes them. */
import { stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { type ArchiveWriter, measureQcow2 } from '../../archive/index.ts';
import { fsFacts } from '../../pools/index.ts';
import type { MemberPlan } from '../backup/members.ts';
import type { OperationContext } from '../context.ts';
import { ConversionsAhead } from './ahead.ts';
import type { ForeignDisk } from './foreign.ts';
import { limitsOf, mostAtOnce } from './limits.ts';
import type { PlannedImport } from './plan.ts';

export interface CopyJob {
  planned: PlannedImport;
  /** By the index of the foreign VM's disk. */
  contents: readonly ForeignDisk[];
  /** Of the spare files. */
  directory: string;
  compress: boolean;
}

const CONVERTED_SHARE = 0.5;

type RawMember = Extract<MemberPlan, { from: 'raw' }>;

interface Disk extends ForeignDisk {
  member: RawMember;
  /** At most; 0 when nobody asked: there is no other disk. */
  imageBytes: number;
}

/**
 * Writes all members. What is not compressed is converted where it stays: all disks side by side where the file system lets them close up
 * when their sizes are known; else the largest one, and the others meanwhile into spare files, of which they are copied, or shared where
 * the file system can; a spare file gives its room back as it is read. With compression each has a spare file.
 * @param create the writer, which is to stop with that signal
 * @throws VirtkeepError as the writer; qemu_img_failed, disk_full, io_failed, canceled
 */
export async function copyMembers(
  context: OperationContext,
  job: CopyJob,
  create: (signal: AbortSignal, onProgress: (bytes: number) => void) => Promise<ArchiveWriter>,
): Promise<void> {
  const { planned, compress, directory } = job;
  context.progress.total(planned.totalBytes);
  const disks = await disksOf(context, job);
  const images = [...planned.images.keys()];
  const parts = [...disks, ...planned.images.values()].map(({ sizeBytes }) => sizeBytes);
  const progress = new CopyProgress(parts, bytes => context.progress.done(bytes));
  const { available: freeBytes } = await fsFacts(directory);
  const sizes = disks.map(({ imageBytes }) => imageBytes);
  const limits = limitsOf(sizes, { freeBytes, processors: availableParallelism(), compress });
  const onProgress = (index: number, fraction: number) => progress.converted(index, fraction);
  const ahead = new ConversionsAhead(context, { disks, directory, limits, onProgress });
  try {
    const writer = await create(ahead.signal, bytes => progress.written(bytes));
    const isDone = !compress && (await sideBySide(writer, disks, progress));
    for (const [index, { member, content }] of isDone ? [] : disks.entries()) {
      const { name, virtualSize } = member;
      const isAhead = compress || ahead.hasBegun(index);
      if (isAhead) {
        const { path, once } = await ahead.converted(index);
        progress.follow(index, CONVERTED_SHARE, (await stat(path)).size);
        const onCopied = (bytes: number) => once.done(bytes);
        await writer.addFile(name, 'disk', path, { onCopied });
        await ahead.release(index);
      } else {
        progress.follow(index, 0, virtualSize);
        await ahead.inPlace(index, () => writer.addRaw(name, content, virtualSize, { formerPath: null }));
      }
    }
    for (const member of planned.archive.members) {
      if (member.from === 'bytes') await writer.addBytes(member.name, member.kind, member.bytes);
      if (member.from !== 'file') continue;
      const { path, offset, sizeBytes } = planned.images.get(member.path)!;
      progress.follow(disks.length + images.indexOf(member.path), 0, sizeBytes);
      const part = { offset, lengthBytes: sizeBytes };
      await writer.addFile(member.name, member.kind, path, { part });
    }
  } finally {
    await ahead.close();
  }
}

/** Converts all disks at the same time, none of which needs a file of its own. @returns false where that is impossible */
async function sideBySide(
  writer: ArchiveWriter,
  disks: readonly Disk[],
  progress: CopyProgress,
): Promise<boolean> {
  const atOnce = mostAtOnce(disks.length, availableParallelism());
  if (atOnce === 1) return false;
  const raws = disks.map(({ member, content, imageBytes }) => ({
    ...{ name: member.name, content, virtualSizeBytes: member.virtualSize },
    ...{ mostBytes: imageBytes, formerPath: null },
  }));
  if (!(await writer.canAddRaws(raws))) return false;
  await writer.addRaws(raws, { atOnce, onProgress: (index, fraction) => progress.stands(index, fraction) });
  return true;
}

/** In the order of the archive: the one that is never copied should be the largest. */
async function disksOf(context: OperationContext, { planned, contents, compress }: CopyJob): Promise<Disk[]> {
  const raws = planned.archive.members.filter((member): member is RawMember => member.from === 'raw');
  const disks: Disk[] = [];
  for (const member of raws) {
    const { index } = planned.disks.find(({ path }) => path === member.path)!;
    const { content, sizeBytes, imageBytes: known } = contents[index]!;
    const imageBytes = known ?? (raws.length > 1 ? await measureQcow2(content, context.signal) : 0);
    disks.push({ member, content, sizeBytes, imageBytes });
  }
  return compress ? disks : disks.sort((one, other) => other.imageBytes - one.imageBytes);
}

/** Bytes of all disks and images that are done. Of a disk that goes through a spare file the conversion counts half. */
class CopyProgress {
  readonly #sizesBytes: readonly number[];
  readonly #shares: number[];
  readonly #report: (bytes: number) => void;
  /** As the writer counts. */
  #writtenBytes = 0;
  #take: (bytes: number) => void = () => {};

  constructor(sizesBytes: readonly number[], report: (bytes: number) => void) {
    this.#sizesBytes = sizesBytes;
    this.#shares = sizesBytes.map(() => 0);
    this.#report = report;
  }

  /** So much of the disk is in its spare file. */
  converted(index: number, fraction: number): void {
    this.#set(index, fraction * CONVERTED_SHARE);
  }

  /** So much of the disk is in the archive. */
  stands(index: number, fraction: number): void {
    this.#set(index, fraction);
  }

  /** What the writer writes from now on is of that disk, of which this share is done. @param totalBytes that come, as the writer counts */
  follow(index: number, share: number, totalBytes: number): void {
    const start = this.#writtenBytes;
    this.#take = bytes =>
      this.#set(index, share + (1 - share) * Math.min(1, (bytes - start) / Math.max(1, totalBytes)));
  }

  /** Called by the writer with all that it has written. */
  written(bytes: number): void {
    this.#writtenBytes = bytes;
    this.#take(bytes);
  }

  #set(index: number, share: number): void {
    this.#shares[index] = share;
    const bytes = this.#sizesBytes.reduce((sum, size, disk) => sum + size * this.#shares[disk]!, 0);
    this.#report(Math.floor(bytes));
  }
}
