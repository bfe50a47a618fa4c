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
  /**
   * The images in its drives, in the same way; called after `readDisks`. Left out: it has none.
   * @returns by the index of the appliance's drive; undefined: the drive is empty
   */
  readImages?(context: OperationContext, directory: string): Promise<(ForeignImage | undefined)[]>;
  /** Subject of the certificate by which it is signed; left out or null: nobody that the node trusts vouches for it. */
  signedBy?: string | null;
  /** @throws VirtkeepError appliance_invalid when a file of it was written to since it was opened */
  requireSame(): Promise<void>;
  /** Warnings that came with its disks. */
  warnings: readonly string[];
  /** Only when nothing reads of it any more. */
  close(): Promise<void>;
}

/** The bytes of an image in a drive: raw whatever they look like, since they are for the guest alone. */
export interface ForeignImage {
  /** What the bytes stand in. */
  path: string;
  offset: number;
  sizeBytes: number;
  /** In the foreign file. */
  name: string;
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
  /** What its image takes at most, where somebody has asked. */
  imageBytes?: number;
}
