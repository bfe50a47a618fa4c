/**
 * Room for what libvirt writes down of a domain. It changes its memory first: what it then has no room to write down holds until
 * libvirtd ends, and is gone with it. So where that would matter it is not asked without room.
 */
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';

/** Where the system's libvirt keeps it; it is built with these paths. */
export const LIBVIRT_PLACES = {
  definitions: '/etc/libvirt/qemu',
  running: '/run/libvirt/qemu',
  states: '/var/lib/libvirt/qemu/snapshot',
  memories: '/var/lib/libvirt/qemu/save',
} as const;
/** A file holds one or two definitions, some dozens of KiB; and libvirt is not alone there. */
const NEEDED_BYTES = MiB;

/** @throws VirtkeepError disk_full, io_failed */
export async function requireRoomIn(directory: string): Promise<void> {
  let path = directory;
  for (;;) {
    try {
      const { bavail, bsize, files, ffree } = await statfs(path);
      if (bavail * bsize < NEEDED_BYTES || (files > 0 && ffree === 0))
        throw new VirtkeepError('disk_full', { path: directory });
      return;
    } catch (error) {
      // libvirt makes it with the first file
      if (errnoOf(error) !== 'ENOENT' || path === dirname(path))
        throw fromIoError(error, 'writing', directory);
      path = dirname(path);
    }
  }
}
