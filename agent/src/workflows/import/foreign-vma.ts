/** An archive of Proxmox VE: one pass of a stream, which brings the data of all disks mixed, into raw images with holes. */
import { open } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import { openVma, type Vma } from '../../appliance/index.ts';
import { markSources } from '../../disks/index.ts';
import { type ProxmoxVm, proxmoxVmOf } from '../../proxmox/index.ts';
import type { OperationContext } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import type { ForeignDisk, ForeignFile } from './foreign.ts';
import { requireSame, sparePath } from './spare.ts';

/** @throws VirtkeepError appliance_invalid, not_a_file, io_failed, canceled */
export async function openForeignVma(
  { path, filename }: { path: string; filename: string },
  context: OperationContext,
): Promise<ForeignFile> {
  const marks = await markSources([path]);
  const vma = await openVma(path, context.signal, bytes => context.progress.done(bytes));
  try {
    const vm = proxmoxVmOf(vma.header, filename);
    const totalBytes = vm.appliance.disks.reduce((sum, { capacityBytes }) => sum + capacityBytes!, 0);
    // of a packed one no more is known before it is unpacked
    const dataBytes = Math.min(vma.sizeBytes, totalBytes);
    return {
      appliance: vm.appliance,
      created: vma.header.created,
      dataBytes,
      spareBytes: dataBytes,
      readDisks: (reading, directory) => readDisks(reading, { vma, vm }, directory),
      requireSame: () => requireSame(path, marks),
      warnings: [],
      close: () => vma.close(),
    };
  } catch (error) {
    await vma.close();
    throw error;
  }
}

async function readDisks(
  context: OperationContext,
  { vma, vm }: { vma: Vma; vm: ProxmoxVm },
  directory: string,
): Promise<ForeignDisk[]> {
  context.progress.total(vma.sizeBytes);
  const disks: ForeignDisk[] = [];
  const files = new Map<string, { file: Awaited<ReturnType<typeof open>>; path: string }>();
  try {
    for (const [index, { capacityBytes }] of vm.appliance.disks.entries()) {
      const path = sparePath(context, directory, index);
      const sizeBytes = capacityBytes!;
      await makeNewFile(context, path, false);
      const file = await open(path, 'r+');
      files.set(vm.devices[index]!, { file, path });
      disks.push({ sizeBytes, content: { path } });
      await file.truncate(sizeBytes).catch(error => {
        throw fromIoError(error, 'writing', path);
      });
    }
    for await (const { device, offset, bytes } of vma.data()) {
      const target = files.get(device.name);
      if (target)
        await writeAt(target.file, bytes, offset).catch(error => {
          throw fromIoError(error, 'writing', target.path);
        });
    }
  } finally {
    for (const { file } of files.values()) await file.close();
  }
  return disks;
}
