/** A foreign file that holds a VM with its disks, opened: what all kinds of them have in common. */
import type { RawContent } from '../../archive/index.ts';
import type { Appliance } from '../../ovf/index.ts';
import type { OperationContext } from '../context.ts';

export interface ForeignFile {
  appliance: Appliance;
  /** Of one that libvirt has described: all but the name and the networks is told here. */
  definition?: ForeignDefinition;
  /** What the state of the backup is of. */
  created: Date;
  /** Bytes of its disks' data, as far as they are known before they are read; and those that unpacking them takes beside. */
  dataBytes: number;
  spareBytes: number;
  /**
   * Brings the data to where QEMU reads them: of a packed one into spare files of that directory, which go with the operation.
   * @returns by the index of the appliance's disk
   */
  readDisks(context: OperationContext, directory: string): Promise<ForeignDisk[]>;
  /** @throws VirtkeepError appliance_invalid when a file of it was written to since it was opened */
  requireSame(): Promise<void>;
  /** Warnings that came with its disks. */
  warnings: readonly string[];
  /** Only when nothing reads of it any more. */
  close(): Promise<void>;
}

export interface ForeignDefinition {
  /** A domain XML, as foreign as the file. */
  xml: string;
  /** Targets of the disks in it whose data there are, in the order of `readDisks`. */
  targets: readonly string[];
}

export interface ForeignDisk {
  /** As the guest sees it. */
  sizeBytes: number;
  content: RawContent;
}
