/** What a guest changes on its disk between two backups. */
import type { Guest } from '../lab/guest.ts';

/** As much as a day of a small server. */
export const CHANGE_MIB = 219;
export const QUICK_CHANGE_MIB = 24;

/** New noise, written again and again: an emulated processor makes little of it. No compressor sees so far back. */
const NOISE_MIB = 8;
const LONG_MS = 600_000;

export interface Change {
  /** As the guest names it. */
  device: string;
  /** Of the device. */
  diskMiB: number;
  changeMiB: number;
}

/** New data that cannot be compressed at a random place of a guest's disk, on the disk when it returns. */
export async function changeDisk(guest: Guest, { device, diskMiB, changeMiB }: Change): Promise<void> {
  const from = Math.floor(Math.random() * (diskMiB - changeMiB));
  const script = `dd if=/dev/urandom of=/tmp/noise bs=1048576 count=${NOISE_MIB} || exit 1
    at=${from}; end=${from + changeMiB}
    while [ $at -lt $end ]; do
      count=$((end - at)); [ $count -gt ${NOISE_MIB} ] && count=${NOISE_MIB}
      dd if=/tmp/noise of=${device} bs=1048576 count=$count seek=$at conv=notrunc,fsync || exit 1
      at=$((at + count))
    done`;
  await guest.sh(`( ${script} ) 2>/dev/null`, LONG_MS);
}
