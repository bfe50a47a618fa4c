/** An archive of Proxmox VE: one pass of a stream, which brings the data of all disks mixed, into raw images with holes. */
import type { FileHandle } from 'node:fs/promises';
import { nameOf } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { writeAt } from '@virtkeep/shared/file-bytes';
import { openVma, type Vma } from '../../appliance/index.ts';
import { markSources } from '../../disks/index.ts';
import { type ProxmoxVm, proxmoxVmOf } from '../../proxmox/index.ts';
import type { OperationContext } from '../context.ts';
import { makeHeldFile } from '../new-file.ts';
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
    const spares: FileHandle[] = [];
    return {
      appliance: vm.appliance,
      created: vma.header.created,
      dataBytes,
      spareBytes: dataBytes,
      readDisks: (reading, directory) => readDisks(reading, { vma, vm, spares }, directory),
      requireSame: () => requireSame(path, marks),
      warnings: [],
      async close() {
        // one that cannot be closed keeps no other open
        await Promise.allSettled(spares.map(file => file.close()));
        await vma.close();
      },
    };
  } catch (error) {
    await vma.close();
    throw error;
  }
}

async function readDisks(
  context: OperationContext,
  { vma, vm, spares }: { vma: Vma; vm: ProxmoxVm; spares: FileHandle[] },
  directory: string,
): Promise<ForeignDisk[]> {
  context.progress.total(vma.sizeBytes);
  const disks: ForeignDisk[] = [];
  const files = new Map<string, { file: FileHandle; path: string }>();
  for (const [index, { capacityBytes }] of vm.appliance.disks.entries()) {
    const path = sparePath(context, directory, index);
    const sizeBytes = capacityBytes!;
    const { file } = await makeHeldFile(context, path, false);
    spares.push(file);
    files.set(vm.devices[index]!, { file, path });
    disks.push({ sizeBytes, content: { path: nameOf(file) } });
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
  return disks;
}
