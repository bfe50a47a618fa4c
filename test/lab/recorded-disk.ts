/**
 * A file system whose disk is recorded: every write and flush that the kernel sends to it, in order, by QEMU's `blklogwrites`
 * below a FUSE export below a loop device. From the record the disk is built as it may be after power was lost at any moment:
 * all that was flushed by then, and of what came later any part.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  mkdirSync,
  openSync,
  readSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { run, start, succeeds, waitFor } from './run.ts';

export type FileSystem = 'ext4' | 'xfs';

/** One write, flush or discard of the record. */
interface Entry {
  /** Where on the disk, bytes. */
  offset: number;
  length: number;
  flush: boolean;
  discard: boolean;
  /** Where in the record its data are, bytes. */
  dataAt: number;
}

const SECTOR = 512;
const SIZE_BYTES = { ext4: 192 * MiB, xfs: 320 * MiB };
/** Of `blklogwrites`: the same as those of dm-log-writes. */
const FLUSH = 1;
const DISCARD = 4;

export class RecordedDisk {
  readonly kind: FileSystem;
  readonly #dir: string;
  readonly mountPoint: string;
  #daemon: ChildProcess | undefined;
  #loop = '';
  #entries: Entry[] = [];
  #parsedTo = SECTOR;

  private constructor(dir: string, kind: FileSystem) {
    this.#dir = dir;
    this.kind = kind;
    this.mountPoint = join(dir, 'd');
  }

  /** Makes the file system in a directory and mounts it below. */
  static async mount(dir: string, kind: FileSystem): Promise<RecordedDisk> {
    const disk = new RecordedDisk(dir, kind);
    mkdirSync(disk.mountPoint);
    for (const name of ['disk.img', 'record', 'export']) writeFileSync(join(dir, name), '');
    truncateSync(join(dir, 'disk.img'), SIZE_BYTES[kind]);
    await disk.#startRecording();
    const noDiscard = kind === 'ext4' ? ['-E', 'nodiscard'] : ['-K'];
    await run([`mkfs.${kind}`, '-q', ...noDiscard, disk.#loop]);
    await run(['mount', '-t', kind, disk.#loop, disk.mountPoint]);
    return disk;
  }

  async #startRecording(): Promise<void> {
    const at = (name: string) => join(this.#dir, name);
    const daemon = start(
      [
        'qemu-storage-daemon',
        ...['--blockdev', `driver=file,node-name=disk,filename=${at('disk.img')}`],
        ...['--blockdev', `driver=file,node-name=record,filename=${at('record')}`],
        ...['--blockdev', 'driver=blklogwrites,node-name=logged,file=disk,log=record'],
        '--export',
        `type=fuse,id=fuse,node-name=logged,mountpoint=${at('export')},writable=on`,
      ],
      { stdio: 'ignore' },
    );
    this.#daemon = daemon;
    const isExported = () => succeeds(['mountpoint', '-q', at('export')]);
    await waitFor('the recorded disk', isExported, 60_000, 20);
    this.#loop = (await run(['losetup', '--find', '--show', at('export')])).stdout.trim();
  }

  /** How much was recorded until now. */
  mark(): number {
    this.#parse();
    return this.#entries.length;
  }

  /** The moments right after a flush in this part of the record. */
  flushes(from: number, to: number): number[] {
    const found: number[] = [];
    for (let at = from; at < to; at += 1) if (this.#entries[at]!.flush) found.push(at + 1);
    return found;
  }

  /** Takes the file system away; the record stays. */
  async unmount(): Promise<void> {
    if (await succeeds(['mountpoint', '-q', this.mountPoint])) await run(['umount', this.mountPoint]);
    if (this.#loop !== '') await run(['losetup', '--detach', this.#loop]);
    this.#loop = '';
    const daemon = this.#daemon;
    this.#daemon = undefined;
    if (daemon?.exitCode !== null) return;
    const ended = once(daemon, 'exit');
    // with it goes the export; where a node of another test has seen it meanwhile, it stays there without its other end
    daemon.kill('SIGTERM');
    await ended;
  }

  /**
   * Mounts the disk as it is when power is lost after so many entries. What was not flushed by then is there in part.
   * @param isLost of each later write: whether it never got to the disk
   */
  async mountAsOf(count: number, isLost: (entry: number) => boolean): Promise<void> {
    const image = join(this.#dir, 'replayed.img');
    this.#build(image, count, isLost);
    // a node of another test that was started meanwhile may still have the former mount, and xfs minds
    const options = this.kind === 'xfs' ? 'loop,nouuid' : 'loop';
    await run(['mount', '-t', this.kind, '-o', options, image, this.mountPoint]);
  }

  async unmountReplayed(): Promise<void> {
    await run(['umount', this.mountPoint]);
    rmSync(join(this.#dir, 'replayed.img'), { force: true });
  }

  #build(image: string, count: number, isLost: (entry: number) => boolean): void {
    let durable = count;
    while (durable > 0 && !this.#entries[durable - 1]!.flush) durable -= 1;
    const record = openSync(join(this.#dir, 'record'), 'r');
    const out = openSync(image, 'w');
    try {
      for (const [index, { offset, length, discard, dataAt }] of this.#entries.slice(0, count).entries()) {
        if (discard || length === 0 || (index >= durable && isLost(index))) continue;
        const data = Buffer.alloc(length);
        readSync(record, data, 0, length, dataAt);
        writeSync(out, data, 0, length, offset);
      }
    } finally {
      closeSync(record);
      closeSync(out);
    }
    truncateSync(image, SIZE_BYTES[this.kind]);
  }

  /** The record grows; an entry that is not there yet reads as zeros. */
  #parse(): void {
    const record = openSync(join(this.#dir, 'record'), 'r');
    const header = Buffer.alloc(32);
    try {
      for (;;) {
        if (readSync(record, header, 0, 32, this.#parsedTo) < 32) return;
        const length = Number(header.readBigUInt64LE(8)) * SECTOR;
        const flags = Number(header.readBigUInt64LE(16));
        if (length === 0 && flags === 0) return;
        const discard = (flags & DISCARD) !== 0;
        const entry = {
          offset: Number(header.readBigUInt64LE(0)) * SECTOR,
          length,
          flush: (flags & FLUSH) !== 0,
        };
        this.#entries.push({ ...entry, discard, dataAt: this.#parsedTo + SECTOR });
        this.#parsedTo += SECTOR + (discard ? 0 : length);
      }
    } finally {
      closeSync(record);
    }
  }
}
